"""``python -m scripts.environment <verb>``: run the builder in its virtual environment, and make that first if need be.

Any Python runs this file, also one that is too old to read the modules below: it has no syntax of Python 3 alone.
"""

import sys

if sys.version_info < (3, 10):  # noqa: UP036
    version = ".".join(map(str, sys.version_info[:2]))
    sys.stderr.write("error: " + sys.executable + ": this is Python " + version + ", too old to build with\n")
    sys.stderr.write("  next: set PYTHON to Python 3.10 or newer\n")
    sys.exit(9)

from .common.builder import enter

sys.exit(enter(sys.argv[1:]))
