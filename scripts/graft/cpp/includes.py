"""Find the headers that sources include, as compilers do, without a compiler."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")

# The path of the native folder below a folder that compilers search: the path of ATen's own in PyTorch.
PLACE = "ATen/native"

# The line of an `#include` that names a file, which is the group.
INCLUDE = re.compile(r"""^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"][^\n]*""", re.M)

# An `#include` or `__has_include`. File systems allow no longer names.
_INCLUDE = re.compile(
    r"(?P<head>^[ \t]*#[ \t]*include[ \t]*|\b__has_include[ \t]*\([ \t]*)"
    r"""(?:"([^"\n]{1,300})"|<([^>\n]{1,300})>)""",
    re.M,
)


def search_flags(parent: Path | str) -> tuple[str, ...]:
    """Return the compiler's flags to search a native folder at ``PLACE`` below ``parent``. Its root is searched for
    names in quotes only, so that its ``omp.h`` does not hide ``<omp.h>``.
    """
    return (quoted_flag(parent), f"-I{parent}")


def quoted_flag(parent: Path | str) -> str:
    """Return the compiler's flag to search the root of a native folder for names in quotes."""
    return f"-iquote{parent}/{PLACE}"


# A function that returns the text of a file of a folder; None if there is no such file.
Texts = Callable[[Path], str | None]


def texts_in(folder: Path) -> Texts:
    """Return a function that reads the files below ``folder``."""

    def text(name: Path) -> str | None:
        is_there = _is_file(folder / name)
        return (folder / name).read_text(encoding="utf-8", errors="replace") if is_there else None

    return text


def included(texts: Texts, sources: Iterable[Path], searched: Sequence[Path] = ()) -> set[Path]:
    """Return the files of a folder that its ``sources`` include, or name in ``__has_include``, directly or indirectly.
    Compilers search the folder's root, and the folders ``searched`` in it.
    """
    first = [*sources]
    return {*reached(first, lambda name: included_directly(texts, name, texts(name) or "", searched))}.difference(first)


def reached(starts: Iterable[T], included: Callable[[T], Iterable[T]]) -> Iterator[T]:
    """Yield files, and what they include, directly or not: each once. ``included`` returns what a file includes."""
    left = [*dict.fromkeys(starts)]
    seen = {*left}
    for file in left:
        yield file
        new = [each for each in dict.fromkeys(included(file)) if each not in seen]
        seen.update(new)
        left += new


def text_with_headers(folder: Path, source: Path, searched: Sequence[Path] = ()) -> str:
    """Return the text of ``source``, and of the headers in ``folder`` that it includes, directly or indirectly. A
    generated source may be outside of ``folder``.
    """
    place = source.relative_to(folder) if source.is_relative_to(folder) else source
    paths = [source, *(folder / name for name in sorted(included(texts_in(folder), [place], searched)))]
    return "\n".join(path.read_text(encoding="utf-8", errors="replace") for path in paths)


def included_directly(texts: Texts, source: Path, text: str, searched: Sequence[Path] = ()) -> set[Path]:
    """Return the files of a folder that the ``text`` of its file ``source`` includes."""
    found = (_find(texts, source, match, searched) for match in _INCLUDE.finditer(text))
    return {each for each in found if each}


def looked_for(
    folder: Path,
    sources: Iterable[Path],
    searched: Sequence[Path] = (),
    place: Callable[[Path], Path] | None = None,
) -> set[Path]:
    """Return the paths, apart from the build's own files, where compilers look for the includes of ``sources`` in
    ``folder``: paths below ``folder`` without a file, searched before the one that is found, and absolute paths.
    ``place`` maps a source to its path, if some are not below ``folder``.
    """
    found: set[Path] = set()
    for source in sources:
        text = (place(source) if place else folder / source).read_text(encoding="utf-8", errors="replace")
        for match in _INCLUDE.finditer(text):
            found.update(
                folder / name
                for name in takewhile(lambda at: not _is_file(folder / at), _places(source, match, searched))
            )
            found.update(Path(name) for name in match.groups()[1:] if name and name.startswith("/"))
    return found


def with_places(texts: Texts, source: Path, text: str, places: Mapping[Path, Path]) -> str:
    """Return the ``text`` of a source for a tree in which files of a folder have other ``places``, and whose compilers
    do not search the folder's root. Includes that they would not find are replaced by ``<PLACE/path>``.
    """

    def write(match: re.Match[str]) -> str:
        found = _find(texts, source, match)
        place = places.get(found, found) if found else None
        if place is None or place in _places(places.get(source, source), match, is_root_searched=False):
            return match[0]
        return f"{match['head']}<{PLACE}/{place.as_posix()}>"

    return _INCLUDE.sub(write, text)


def _find(texts: Texts, source: Path, match: re.Match[str], searched: Sequence[Path] = ()) -> Path | None:
    return next((each for each in _places(source, match, searched) if texts(each) is not None), None)


def _places(
    source: Path, match: re.Match[str], searched: Sequence[Path] = (), *, is_root_searched: bool = True
) -> Iterator[Path]:
    """Yield the paths below the folder where a compiler looks for an include in ``source``, in its order."""
    _, quoted, bracketed = match.groups()
    name = quoted or bracketed
    places = [source.parent / name, *([Path(name)] if is_root_searched else [])] if quoted else []
    if name.startswith(f"{PLACE}/"):
        places.append(Path(name.removeprefix(f"{PLACE}/")))
    places += [folder / name for folder in searched]
    for place in map(os.path.normpath, places):
        if not place.startswith(("/", "..")) and place != ".":
            yield Path(place)


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except OSError:  # the name is too long for the file system
        return False
