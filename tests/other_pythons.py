"""``python -m tests.other_pythons``: print the other Pythons here that README's commands must work on."""

import sys

from graft.core.pythons import find_python

SUPPORTED = ("3.10", "3.11", "3.12", "3.13", "3.14")

if __name__ == "__main__":
    for version in SUPPORTED:
        python = find_python(version)
        if python is None:
            print(f"NOT TESTED: Python {version} is not installed", file=sys.stderr)
        elif python.version[:2] != sys.version_info[:2]:
            print(python.path)
