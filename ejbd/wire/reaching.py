"""The variables by which a client finds its daemon; a job gets them from its submission, so that it may submit, too."""

from __future__ import annotations

URL, SOCKET, TOKEN = "EJB_URL", "EJB_SOCKET", "EJB_TOKEN"
CA = "EJB_CA"  # a PEM file: certificates that an https address is held against, in place of the system's
PLACES = (URL, SOCKET, CA)
REACHING = (*PLACES, TOKEN)
