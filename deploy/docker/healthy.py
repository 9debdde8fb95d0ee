"""The daemon's own word on its health, as an exit code: 0 where GET /v1/health is 200."""

import sys
import urllib.error
import urllib.request

try:
    with urllib.request.urlopen("http://127.0.0.1:8642/v1/health", timeout=5) as answer:
        print(answer.status)
except urllib.error.HTTPError as error:
    sys.exit(error.read(2000).decode(errors="replace"))
except OSError as error:
    sys.exit(f"no answer: {error}")
