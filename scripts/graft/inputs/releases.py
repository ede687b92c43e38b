"""The releases of PyTorch that parts of native folders are for: `releases` in entries and in [tool.graft]."""

from __future__ import annotations

from packaging.specifiers import InvalidSpecifier, SpecifierSet


def is_specifier(text: object) -> bool:
    """Return whether a value is a version specifier, as in requirements for pip: ``<2.15``."""
    try:
        SpecifierSet(text if isinstance(text, str) else "no text")
    except InvalidSpecifier:
        return False
    return True


def is_for(releases: object, release: str) -> bool:
    """Return whether ``release`` is one of ``releases``; True if it is empty, or ``releases`` is not a specifier."""
    return not (release and is_specifier(releases)) or SpecifierSet(str(releases)).contains(release, prereleases=True)
