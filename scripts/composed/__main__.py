"""`scripts/compose-test` starts this."""

import sys

from composed.main import main

sys.exit(main())
