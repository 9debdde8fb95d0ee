"""Files that come along with EJB: examples, and what a site installs. In a checkout they are the checkout's own."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).parent
EXAMPLES = HERE / "examples"
DEPLOY = HERE / "deploy"
