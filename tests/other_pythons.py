"""``python -m tests.other_pythons``: print the other Pythons here that README's commands must work on; after
``--one COMMIT`` the one that is a commit's.
"""

import sys

from graft.core.pythons import find_python

SUPPORTED = ("3.10", "3.11", "3.12", "3.13", "3.14")


def one_of(names: list[str], commit: str) -> list[str]:
    """Return the name that a commit's hash chooses: other commits choose the others."""
    return [names[int(commit[:8], 16) % len(names)]] if names else []


def main(commit: str = "") -> None:
    found = {version: find_python(version) for version in SUPPORTED}
    for version in (version for version, python in found.items() if python is None):
        print(f"NOT TESTED: Python {version} is not installed", file=sys.stderr)
    others = {name: each.path for name, each in found.items() if each and each.version[:2] != sys.version_info[:2]}
    chosen = one_of([*others], commit) if commit else [*others]
    if commit:
        print(f"of {', '.join(others) or 'no other Python'}: {commit[:8]} chooses {chosen or 'none'}", file=sys.stderr)
    for name in chosen:
        print(others[name])


if __name__ == "__main__":
    main(*sys.argv[2:])
