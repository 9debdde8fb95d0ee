"""The pages of the site: documents of the checkout, in folders as they are there, so that links hold on GitHub, too.

mkdocs takes no folder of pages that its own settings lie in, and docs link to files beyond `docs`. So the pages are
copied to a folder of their own before they are built.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = ROOT / "docs" / "mkdocs.yml"
BESIDE = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "benchmarks/README.md", "deploy/docker/README.md")
"""Documents outside `docs` that are pages, too."""
BUILD_S = 300.0
_LINK = re.compile(r"\]\(([^)#\s]+)")


def lay_out(folder: Path) -> list[Path]:
    """Copy every page, and every file that a page links to; the pages, relative to `folder`."""
    pages = [Path(name) for name in BESIDE]
    pages += sorted(path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*.md"))
    wanted = set(pages)
    for page in pages:
        for target in _LINK.findall((ROOT / page).read_text()):
            file = Path(os.path.normpath(page.parent / target))
            if "://" not in target and (ROOT / file).is_file():
                wanted.add(file)
    for file in wanted:
        place = folder / file
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / file, place)
    return pages


def build(site: Path) -> int:
    """Build the site into a folder; mkdocs' exit code, which is not 0 where a link leads nowhere."""
    with tempfile.TemporaryDirectory(prefix="ejb-docs-") as folder:
        lay_out(Path(folder))
        code = build_from(Path(folder), site)
    if code == 0:
        print(f"docs: built in {site}")
    return code


def build_from(folder: Path, site: Path) -> int:
    """As :func:`build`, from pages that are laid out; warnings and errors go to standard error."""
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", str(SETTINGS), "-d", str(site)],
        env={**os.environ, "EJB_DOCS_PAGES": str(folder), "NO_MKDOCS_2_WARNING": "1"},
        stderr=subprocess.PIPE,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    # mkdocs' own --quiet would keep warnings from --strict, too.
    print("".join(line for line in done.stderr.splitlines(True) if "INFO" not in line), end="", file=sys.stderr)
    return done.returncode
