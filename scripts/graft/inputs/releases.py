"""The releases of PyTorch that parts of native folders are for: `releases` in entries and in [tool.graft]."""

from __future__ import annotations

from packaging.specifiers import InvalidSpecifier, SpecifierSet


def is_specifier(text: object) -> bool:
    """Return whether a value says which releases are meant, as requirements for pip do: ``<2.15``."""
    try:
        SpecifierSet(text if isinstance(text, str) else "no text")
    except InvalidSpecifier:
        return False
    return True


def is_for(releases: object, release: str) -> bool:
    """Return whether ``release`` is one of ``releases``; also if either says nothing."""
    return not (release and is_specifier(releases)) or SpecifierSet(str(releases)).contains(release, prereleases=True)
