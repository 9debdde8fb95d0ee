"""A package of a site, and how tests install it."""

from __future__ import annotations

import shutil
from pathlib import Path

HERE = Path(__file__).parent
ENTRY_POINTS = """\
[ejbd.policies]
patient = our_site:Patient
torn = our_site:Nobody
[ejbd.engines]
snap = our_plugins:SNAP
dmtcp = our_plugins:TAKEN
odd = our_plugins:NO_ENGINE
[ejbd.batch]
shed = our_plugins:SHED
gone = no_such_module:BATCH
"""
BROKEN = {
    "the policy torn (our_site:Nobody) of our-site cannot be loaded: ": "has no attribute 'Nobody'",
    "the engine dmtcp (our_plugins:TAKEN) of our-site cannot be loaded: ": "there is an engine dmtcp already",
    "the engine odd (our_plugins:NO_ENGINE) of our-site cannot be loaded: ": "no EngineKind of ejbd.plugins.engines",
    "the batch system gone (no_such_module:BATCH) of our-site cannot be loaded: ": "No module named 'no_such_module'",
}
"""What is said of those that cannot be had: how the sentence begins, and how it ends."""


def install(folder: Path) -> Path:
    """Put the package into a folder, which has to come on Python's path."""
    info = folder / "our_site-1.0.dist-info"
    info.mkdir(parents=True)
    for name in ("our_plugins.py", "snap.py"):
        shutil.copyfile(HERE / name, folder / name)
    shutil.copyfile(HERE.parent / "site_policy.py", folder / "our_site.py")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: our-site\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    return folder
