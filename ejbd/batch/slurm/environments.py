"""What an sbatch is given of its user's environment for the job, and what of it must not reach sbatch itself."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from ejbd.batch.process import steers
from ejbd.errors import BatchError

# What the loader, the C library and sbatch itself go by. LD_LIBRARY_PATH, which most environments have, may do what it
# does to the user's own sbatch.
_READ_BY_SBATCH = re.compile(
    "LD_(?!LIBRARY_PATH$)|GLIBC_|MALLOC_|(GCONV_PATH|LOCPATH|NLSPATH)$|SBATCH_"
    "|SLURM_(CLUSTERS|CONF|CONF_SERVER|CONFIG_FETCH|DEBUG_FLAGS|EXIT_ERROR|HINT|JWT|SACK_KEY|UMASK)$"
)


def may_go_along(name: str) -> bool:
    """A user's locale and time zone are the job's; SLURM_* and SBATCH_* would change the submission itself."""
    return not steers(name) or is_of_place(name)


def is_of_place(name: str) -> bool:
    return name.startswith("LC_") or name in ("LANG", "LANGUAGE", "TZ")


def split_environment(users: Mapping[str, str], conf: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """For an sbatch that reads its job's environment from no file: in what it is started, and words for `--export`.

    What would load other libraries into it, ask another Slurm (`conf`: the site's) or change the submission is a word.
    Not more is: with such words Slurm adds the variables of a login.
    Raises BatchError for a value that cannot stand in one.
    """
    started_in, words = dict(conf), []
    for name, value in users.items():
        if _READ_BY_SBATCH.match(name) and value != conf.get(name):
            words.append(_export_word(name, value))
        else:
            started_in[name] = value
    return started_in, words


def _export_word(name: str, value: str) -> str:
    if value.count("'") % 2 or value.count('"') % 2:
        raise BatchError(f"sbatch of this Slurm cannot hand on {name}, in which a quote is left open", transient=False)
    quote = '"' if "'" in value else "'"
    return f"{quote}{name}={value}{quote}" if set(value) & set(",'\"") else f"{name}={value}"


def in_memory(environment: Mapping[str, str]) -> int:
    """A file that no disk holds, as sbatch's --export-file reads it: a null character behind each variable."""
    data = "".join(f"{name}={value}\0" for name, value in environment.items()).encode(errors="surrogateescape")
    descriptor = os.memfd_create("environment")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except OSError as error:
        os.close(descriptor)
        raise BatchError(f"the job's environment cannot be kept: {error.strerror}", transient=True) from error
    return descriptor
