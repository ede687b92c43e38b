"""``python -m graft``: the command line."""

import sys

from .cli import command

sys.exit(command())
