"""`python -m hermes_core.cli` is `hermes`."""

import sys

from hermes_core.cli import main

sys.exit(main())
