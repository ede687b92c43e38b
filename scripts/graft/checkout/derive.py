"""Write what the working tree of a checkout changes as a native folder into the cache."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from ..core.files import lay_out_files
from ..core.folders import CHECKOUT, OVERLAY
from ..fork.apply import HELPERS_HEADER, HELPERS_SOURCE, YAML_FILES
from ..inputs.entries import fields_of, kernels_of, split_entries
from ..inputs.native import DERIVATIVES, FUNCTIONS, HELPERS, PYTHON
from ..inputs.native import HELPERS_HEADER as HELPERS_OWN_HEADER
from . import headers as of_headers
from .changed_entries import Changed, changed_entries, changed_formulas, composite_name, text_of_entries
from .code import Code
from .entry_lines import text_at_lines
from .python import PYTHON_SUFFIXES, installed_name, taken
from .sources import NATIVE, in_wheel, is_header, is_source, place_of, why_left
from .versions import Versions

# As many sources that did not change are compiled for a changed header without being asked for.
_MOST_USERS = 8

# What is no part of a wheel needs no word.
_SILENT = re.compile(
    r"(?:test|docs|benchmarks|scripts|android|ios|\.\w[^/]*)/|[^/]*\.(?:md|txt|toml|cfg|ini)$|\.[^/]*$"
)
_LEFT = {
    "torchgen/": "the wheel's own generator runs",
    "tools/": "the wheel's own generator and templates run",
    "aten/src/ATen/templates/": "the wheel's own templates are used",
    "third_party/": "PyTorch's libraries contain it",
    "cmake/": "nothing of PyTorch is built",
}
# Headers of PyTorch by their paths below torch/include.
_INCLUDE = re.compile(rb"^[ \t]*#[ \t]*include[ \t]*<((?:ATen|c10|torch)/[^>\n]+)>", re.M)

_IN_BINARIES = "PyTorch's own binaries, or its build, contain it"


@dataclass(frozen=True)
class Question:
    """What a native folder is asked for.

    Args:
        versions: the two versions of PyTorch's files.
        site: the folder with the ``torch`` that is built on; None if the folder is for any.
        files: sources that are compiled, too, with the headers that changed: paths below ``aten/src/ATen``.
        is_whole: whether Python files of torch can be laid over as they are.
    """

    versions: Versions
    site: Path | None
    files: tuple[str, ...] = ()
    is_whole: bool = True

    @property
    def has_cuda(self) -> bool:
        """Whether kernels for CUDA can be built."""
        return self.site is None or (self.site / "torch/lib/libtorch_cuda.so").exists()

    def installed(self, name: str) -> bytes | None:
        """Return the content of a file of the torch; None if there is none."""
        return (self.site / name).read_bytes() if self.site and (self.site / name).is_file() else None


@dataclass
class Answer:
    """What a working tree changes, as a native folder.

    Args:
        files: the files of the folder.
        places: the path in the checkout of each.
        overlay: the content of files of torch that are laid over, by path below site-packages.
        left: by path in the checkout, or what it is about, why something is not carried.
        refused: operators that cannot be carried.
        said: what else is to be told.
        operators: the operators of which something changes.
        added: the names of operators that are new.
        changed: the paths in the checkout of all that changed.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    overlay: dict[str, tuple[bytes, str]] = field(default_factory=dict)
    left: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    said: list[str] = field(default_factory=list)
    operators: set[str] = field(default_factory=set)
    added: set[str] = field(default_factory=set)
    changed: frozenset[str] = frozenset()

    @property
    def read(self) -> set[str]:
        """The paths in the checkout of what is carried, whether it changed or is only needed."""
        return {*self.places.values(), *(place for _, place in self.overlay.values())}

    def write(self, folder: Path, tree: Path) -> None:
        """Write the native folder."""
        overlay = {f"{OVERLAY}/{name}": content for name, (content, _) in self.overlay.items()}
        note = {
            "tree": str(tree),
            "places": self.places,
            "overlay": {name: place for name, (_, place) in self.overlay.items()},
        }
        lay_out_files(folder, {**self.files, **overlay, CHECKOUT: json.dumps(note, indent=1).encode()})


def derive(question: Question) -> Answer:
    """Return what the working tree changes."""
    return _Derivation(question).run()


class _Derivation:
    def __init__(self, question: Question) -> None:
        self._question = question
        self._tree = question.versions.tree
        self._changed = question.versions.changed
        self._answer = Answer(changed=frozenset(self._changed))
        known = [*self._changed, *YAML_FILES.values(), HELPERS_SOURCE, HELPERS_HEADER]
        self._texts = question.versions.before([name for name in known if self._is_read(name)])
        self._refuse_conflicts()

    def _is_read(self, name: str) -> bool:
        return is_source(name) or is_header(name) or name.startswith("torch/") or name in YAML_FILES.values()

    def _refuse_conflicts(self) -> None:
        """Check that git has left no conflict's markers in what is read."""
        found = []
        for name in self._named(filter(self._is_read, self._changed)):
            text = self._after(name)
            if mark := re.search(r"^<{7} .*$(?=[\s\S]*^>{7} )", text, re.M):
                found.append(
                    f"{self._tree / name}:{text.count(chr(10), 0, mark.start()) + 1}: a merge conflict's marker"
                )
        if found:
            raise UsageError("\n".join(found), todo="resolve the conflicts; nothing was built")

    def run(self) -> Answer:
        self._sort()
        codes = self._codes(self._headers())
        entries, formulas = self._entries(codes)
        self._sources(codes, entries)
        self._helpers(formulas)
        self._lacking_headers()
        self._python(entries)
        write = text_of_entries if self._question.site is None else text_at_lines
        for file, (found, _) in ((FUNCTIONS, entries), (DERIVATIVES, formulas)):
            name = YAML_FILES[file]
            self._put(str(file), name, write(self._after(name), found))
        return self._answer

    def _before(self, name: str) -> str:
        return _text(self._texts.get(name))

    def _after(self, name: str) -> str:
        return _text(self._question.versions.after(name))

    def _put(self, name: str, place: str, text: str) -> None:
        """Add a file to the native folder, unless its text is empty. A folder for any torch has no lines to keep."""
        if text.strip():
            if self._question.site is None and text != self._after(place):
                text = re.sub(r"\n(?:[ \t]*\n){2,}", "\n\n", text).strip("\n") + "\n"
            self._answer.files[name], self._answer.places[name] = text.encode(), place

    def _put_whole(self, name: str, place: str) -> None:
        """Add a new file of the checkout, byte for byte."""
        content = self._question.versions.after(place)
        assert content is not None, place
        self._answer.files[name], self._answer.places[name] = content, place

    def _named(self, which: Iterable[str]) -> list[str]:
        return [name for name in which if name in self._changed and self._changed[name] != "D"]

    def _sort(self) -> None:
        """Note what cannot be carried."""
        for name, status in self._changed.items():
            if status == "S":
                self._answer.left[name] = "PyTorch's libraries contain what this submodule has"
            elif is_source(name) or is_header(name):
                if why := why_left(name, self._tree, has_cuda=self._question.has_cuda):
                    self._answer.left[name] = why
                elif status == "D":
                    self._answer.left[name] = "deleted; the torch that is built on keeps it"
            elif name in (*YAML_FILES.values(), HELPERS_SOURCE, HELPERS_HEADER) or _is_python(name):
                continue
            elif not _SILENT.match(name):
                self._answer.left[name] = next(
                    (why for place, why in _LEFT.items() if name.startswith(place)), _IN_BINARIES
                )

    def _headers(self) -> set[str]:
        """Take the headers that changed. Return the names that changed in those that are laid over."""
        names: set[str] = set()
        for name in self._named(filter(is_header, self._changed)):
            before, after = self._before(name), self._after(name)
            if name in self._answer.left:
                continue
            if self._texts.get(name) is None and name.startswith(f"{NATIVE}/"):
                self._put_whole(place_of(name), name)
            elif of_headers.is_same(before, after):
                continue
            elif self._question.site is None:
                self._answer.left[name] = (
                    "a native folder has no headers of PyTorch; `make develop SOURCE=` lays it over"
                )
            elif why := of_headers.refused(name, before, after):
                self._answer.left[name] = why
            else:
                self._answer.overlay[in_wheel(name)] = after.encode(), name
                names |= Code(before, after).names
        vectors = [place for _, place in self._answer.overlay.values() if "/cpu/vec/" in place]
        if vectors and (faults := [name for name in self._answer.left if "/cpu/vec/" in name]):
            for name in vectors:
                del self._answer.overlay[in_wheel(name)]
                self._answer.left[name] = f"{faults[0]} cannot be laid over, and headers of vectors go together"
        return names

    def _codes(self, names: set[str]) -> dict[str, Code]:
        """Return the sources that changed, and those that are compiled for headers that did."""
        sources = [name for name in self._named(filter(is_source, self._changed)) if name not in self._answer.left]
        laid_over = {place for _, place in self._answer.overlay.values()}
        asked = [f"aten/src/ATen/{name}" for name in self._question.files]
        if missing := [name for name in asked if not (self._tree / name).is_file()]:
            raise UsageError(
                "\n".join(f"FILES: {self._tree / name}: no such file" for name in missing),
                todo="write paths below aten/src/ATen, as native/cpu/ReduceOpsKernel.cpp",
            )
        others = {} if not laid_over else self._users(laid_over, names, [*sources, *asked])
        including = of_headers.users(self._tree, laid_over, sources) if laid_over else set()
        codes = {
            name: Code(self._before(name), self._after(name), names if name in including else ()) for name in sources
        }
        codes |= {name: others.get(name) or Code(self._after(name), self._after(name), names) for name in asked}
        if laid_over and not including and not asked:
            codes |= others
        return codes

    def _users(self, headers: Collection[str], names: set[str], sources: Collection[str]) -> dict[str, Code]:
        """Return the sources that did not change, and whose kernels use what changed in headers."""
        every = [path.relative_to(self._tree).as_posix() for path in (self._tree / NATIVE).rglob("*.cpp")]
        every += [path.relative_to(self._tree).as_posix() for path in (self._tree / NATIVE).rglob("*.cu")]
        among = [each for each in every if not why_left(each, self._tree, has_cuda=self._question.has_cuda)]
        using = of_headers.users(self._tree, headers, among) - {*sources}
        codes = {name: Code(text, text, names) for name in sorted(using) for text in [self._after(name)]}
        codes = {name: code for name, code in codes.items() if code.affected}
        named = " ".join(sorted(place_of(header) for header in headers))
        has_users = not of_headers.users(self._tree, headers, sources).isdisjoint(sources)
        if has_users and codes:
            shown = f'FILES="native/{place_of(min(codes))} ..."'
            self._answer.said.append(
                f"{named}: {len(codes)} other sources of PyTorch keep the old; {shown} compiles them"
            )
        elif not has_users and len(codes) > _MOST_USERS:
            listed = " ".join(f"native/{place_of(name)}" for name in list(codes)[:_MOST_USERS])
            raise UsageError(
                f"{named}: no source that changed includes what changed here, and {len(codes)} others do",
                todo=f'set FILES to those to compile with it, for example FILES="{listed}"',
            )
        elif not has_users and not codes:
            self._answer.said.append(f"{named}: laid into torch/include; no source of kernels uses what changed there")
        return codes

    def _entries(self, codes: Mapping[str, Code]) -> tuple[Changed, Changed]:
        """Return the entries of operators and the formulas that are new or replace PyTorch's."""
        affected = {name for code in codes.values() for name in code.functions}
        functions, formulas = ((self._before(name), self._after(name)) for name in YAML_FILES.values())
        is_changed = functions[0] != functions[1]
        entries: Changed = changed_entries(*functions, affected) if is_changed or affected else ({}, {})
        if not self._question.has_cuda:
            entries = {name: _without_cuda(fields) for name, fields in entries[0].items()}, entries[1]
        of_formulas: Changed = ({}, {})
        if formulas[0] != formulas[1]:
            of_formulas = changed_formulas(*formulas, split_entries(functions[0]).keys())
        for file, (_, left) in ((FUNCTIONS, entries), (DERIVATIVES, of_formulas)):
            for operator, what in left.items():
                self._answer.left[f"{YAML_FILES[file]}: {operator}"] = f"a release keeps {what}"
        self._refuse(functions, entries, of_formulas)
        self._answer.operators |= entries[0].keys() | of_formulas[0].keys()
        return entries, of_formulas

    def _refuse(self, functions: tuple[str, str], entries: Changed, formulas: Changed) -> None:
        """Take out the operators of the torch that is built on whose schemas change."""
        theirs, ours = map(split_entries, functions)
        for name in entries[1]:
            if name in ours and fields_of(ours[name])["func"] != fields_of(theirs[name])["func"]:
                self._answer.left.pop(f"{YAML_FILES[FUNCTIONS]}: {name}")
                line = functions[1][: functions[1].index(ours[name])].count("\n") + 1
                self._answer.refused[name] = f"{self._tree / YAML_FILES[FUNCTIONS]}:{line}"
                entries[0].pop(name, None)
                formulas[0].pop(name, None)
        self._refused_kernels = {
            kernel.rpartition("::")[2]
            for name in self._answer.refused
            for fields in [fields_of(ours[name])]
            for kernel in (*kernels_of(fields).values(), composite_name(name), name.replace(".", "_"))
        }

    def _sources(self, codes: Mapping[str, Code], entries: Changed) -> None:
        """Take of each source what is needed for the entries, and what registers itself."""
        ours = split_entries(self._after(YAML_FILES[FUNCTIONS]))
        fields = {name: each or fields_of(ours[name]) for name, each in entries[0].items()}
        kernels = {
            kernel.rpartition("::")[2]
            for name, each in fields.items()
            for kernel in (*kernels_of(each).values(), *([] if kernels_of(each) else [composite_name(name)]))
        }
        # The meta function of a structured operator.
        for name, each in fields.items():
            delegate = each.get("structured_delegate") or fields_of(ours[name]).get("structured_delegate")
            kernels |= {name.replace(".", "_")} if delegate else set()
            if fields_of(ours[name]).get("structured"):
                kernels |= {other.replace(".", "_") for other in _functional_variants(ours, name)}
        refused = self._refused_kernels - kernels
        used = kernels.union(*(code.used for code in codes.values()))
        for name, code in codes.items():
            if not self._before(name) and refused.isdisjoint(code.functions):
                self._put_whole(place_of(name), name)
            else:
                self._put(place_of(name), name, code.text(kernels - refused, refused))
            for statement in code.registrations:
                self._answer.operators |= _operators_named(statement.words, ours)
            if alone := sorted(code.edited - used - refused):
                why = "only PyTorch's own code calls this directly, and keeps PyTorch's"
                self._answer.left[f"{name}: {', '.join(alone)}"] = why

    def _helpers(self, formulas: Changed) -> None:
        """Take the functions for formulas that changed, and those that formulas need and the torch lacks."""
        before, after = self._before(HELPERS_SOURCE), self._after(HELPERS_SOURCE)
        header = self._before(HELPERS_HEADER), self._after(HELPERS_HEADER)
        texts = " ".join(str(fields or name) for name, fields in formulas[0].items())
        ours = split_entries(self._after(YAML_FILES[DERIVATIVES])) if formulas[0] else {}
        texts += " ".join(ours[name] for name in formulas[0])
        there = self._question.installed(f"torch/include/{HELPERS_HEADER}")
        declared = {*re.findall(r"\w+", header[1])} - {*re.findall(r"\w+", _text(there))}
        lacking = {*re.findall(r"\w+", texts)} & declared if there is not None else set()
        if before == after and header[0] == header[1] and not lacking:
            return
        code = Code(before, after)
        self._put(str(HELPERS), HELPERS_SOURCE, code.text(code.functions | lacking, has_own=False))
        every = split_entries(self._after(YAML_FILES[DERIVATIVES]))
        using = {name for name, text in every.items() if not code.functions.isdisjoint(re.findall(r"\w+", text))}
        self._answer.operators |= using
        self._put(str(HELPERS_OWN_HEADER), HELPERS_HEADER, Code(*header).declarations(lacking))

    def _lacking_headers(self) -> None:
        """Take the headers that sources include and that the checkout has, but not the torch."""
        if self._question.site is None:
            return
        left = [content for name, content in self._answer.files.items() if name in self._answer.places]
        left += [content for content, _ in self._answer.overlay.values()]
        seen: set[str] = set()
        while left:
            found = {name.decode() for name in _INCLUDE.findall(left.pop())} - seen
            seen |= found
            for name in found:
                place = f"aten/src/{name}" if name.startswith("ATen/") else name
                in_torch = f"torch/include/{name}"
                if (self._question.site / in_torch).exists() or in_torch in self._answer.overlay:
                    continue
                if (self._tree / place).is_file() and place_of(place) not in self._answer.files:
                    content = (self._tree / place).read_bytes()
                    self._answer.overlay[in_torch] = content, place
                    left.append(content)

    def _python(self, entries: Changed) -> None:
        # An overload has the docstring of PyTorch's operator.
        theirs = {name.partition(".")[0] for name in split_entries(self._before(YAML_FILES[FUNCTIONS]))}
        new = {name.partition(".")[0] for name, each in entries[0].items() if each is None}
        added = self._answer.added = new - theirs
        for name in filter(_is_python, self._changed):
            before, after = self._texts.get(name), self._question.versions.after(name)
            installed = self._question.installed(installed_name(name)) if self._question.site else before
            only_behind = not self._question.is_whole
            try:
                found = taken(name, before, after, installed, added, self._answer.refused, only_behind=only_behind)
            except ValueError as error:
                self._answer.left[name] = str(error)
                continue
            if found.whole is not None:
                self._answer.overlay[installed_name(name)] = found.whole, name
            place = f"{PYTHON}/{installed_name(name).removeprefix('torch/')}"
            if found.behind.isspace():  # an empty file makes a package
                self._put_whole(place, name)
            self._put(place, name, found.behind)
            for place, text in found.docs.items():
                self._put(place, name, text)
            self._answer.left |= {f"{name}: {each}": "left out" for each in found.left}


def _text(content: bytes | None) -> str:
    return (content or b"").decode("utf-8", errors="replace").replace("\r\n", "\n")


def _is_python(name: str) -> bool:
    return name.startswith("torch/") and name.endswith(PYTHON_SUFFIXES)


def _without_cuda(fields: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the fields of an entry that replaces PyTorch's without kernels for CUDA, if others are left."""
    kernels = {key: kernel for key, kernel in kernels_of(fields or {}).items() if "CUDA" not in key}
    return {**fields, "dispatch": kernels} if fields and kernels else fields


def _functional_variants(ours: Mapping[str, str], name: str) -> list[str]:
    """Return the operators that delegate to a structured one."""
    return [each for each, text in ours.items() if re.search(rf"structured_delegate: *{re.escape(name)}\s", text)]


def _operators_named(words: Collection[str], ours: Mapping[str, str]) -> set[str]:
    """Return the operators whose names begin the names of dispatch stubs or kernels: ``lerp`` of ``lerp_stub``."""
    roots = {name.partition(".")[0] for name in ours}
    begun = ([word[: end.start()] for end in re.finditer(r"_|$", word)] for word in words)
    return {max(found, key=len) for each in begun if (found := [root for root in each if root in roots])}
