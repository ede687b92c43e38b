"""``python scripts/environment.py <verb>``: run the builder in its virtual environment, which is created first if
needed.

Any Python can run this file, even one too old for the modules below, so that it can report the error.
"""

import sys

if sys.version_info < (3, 10):  # noqa: UP036
    version = ".".join(map(str, sys.version_info[:2]))
    sys.stderr.write("error: " + sys.executable + ": this is Python " + version + ", too old to build with\n")
    sys.stderr.write("  next: set PYTHON to Python 3.10 or newer\n")
    sys.exit(9)

from graft.core.builder import enter

sys.exit(enter(sys.argv[1:]))
