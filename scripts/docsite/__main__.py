"""`scripts/docs` starts this."""

import sys
from pathlib import Path

from docsite import pages, rest

if sys.argv[1:] == ["--rest"]:
    rest.PAGE.write_text(rest.page())
else:
    site = Path(sys.argv[1]) if sys.argv[1:] else pages.ROOT / "build" / "site"
    sys.exit(pages.build(site.absolute()))
