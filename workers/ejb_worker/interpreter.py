"""What runs a script: its `#!` line, as the kernel reads it."""

from __future__ import annotations

import os
from typing import List

from .failures import LaunchError


def interpreter_of(path: str) -> List[str]:
    """The words of a script's `#!` line as the kernel reads them: the interpreter and at most one argument.

    Read here rather than by the kernel, so that the script needs no x bit and its file system may be mounted noexec.
    """
    with open(path, "rb") as script:
        first = script.read(4096).split(b"\n", 1)[0]
    words = os.fsdecode(first[2:]).strip().split(None, 1) if first.startswith(b"#!") else []
    if not words:
        raise LaunchError("the script has no interpreter line (#!/bin/bash, say): %s" % path, 126)
    return [words[0]] + [word.strip() for word in words[1:]]


def is_bash(interpreter: List[str]) -> bool:
    """bash, also by way of `/usr/bin/env bash` or `env -S bash -e`."""
    words = " ".join(interpreter).split()
    names = [os.path.basename(word) for word in words if not word.startswith("-")]
    return names[:1] == ["bash"] or names[:2] == ["env", "bash"]
