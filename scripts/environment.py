"""``python scripts/environment.py MODULE VERB ...``: run a module in the builder's virtual environment, which is
created first if needed. With ``variables`` alone: print the options as variables of make.

Any Python can run this file, even one too old for the modules below, so that it can report the error.
"""

import sys

if sys.version_info < (3, 10):  # noqa: UP036
    version = ".".join(map(str, sys.version_info[:2]))
    sys.stderr.write("error: " + sys.executable + ": this is Python " + version + ", too old to build with\n")
    sys.stderr.write("  next: set PYTHON to Python 3.10 or newer\n")
    sys.exit(2)

import os

from graft.core.bugs import say_error
from graft.core.environments import enter
from graft.core.errors import UsageError
from graft.given import require_known, take_from_make, variables

try:
    require_known(os.environ)
except UsageError as error:
    sys.exit(say_error(error))
if sys.argv[1:] == ["variables"]:
    from graft.cli import VERBS, equipment

    print(variables([*VERBS, *equipment()]))
    sys.exit()
if sys.argv[1] != "nox":  # whose sessions call make again
    take_from_make(os.environ)
sys.exit(enter(sys.argv[1], sys.argv[2:]))
