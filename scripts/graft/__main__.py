"""``python -m graft``: the command line."""

import sys

from .core.errors import GraftError

try:
    from .cli import command
except GraftError as error:  # about the folders of what is built
    print(f"error: {error}", file=sys.stderr)
    sys.exit(error.exit_code)

sys.exit(command())
