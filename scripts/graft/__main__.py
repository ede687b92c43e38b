"""``python -m graft``: the command line."""

import sys

from .core.errors import GraftError

try:
    from .cli import command
except GraftError as error:  # importing ``cli`` looks up the build folders, which can fail
    print(f"error: {error}", file=sys.stderr)
    sys.exit(error.exit_code)

sys.exit(command())
