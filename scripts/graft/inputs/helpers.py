"""Functions that derivative formulas call: ``FunctionsManual.cpp`` of native folders, as in torch/csrc/autograd."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from ..cpp.functions import Definition, functions
from ..cpp.sources import read_text
from .merge import PACKAGED
from .native import DERIVATIVES, NativeFolders

NAMESPACE = "torch::autograd::generated::details"
# The beginning of the mangled names of functions in that namespace.
MANGLED = "_ZN" + "".join(f"{len(part)}{part}" for part in NAMESPACE.split("::"))

# PyTorch's header, which formulas see.
HEADER = "torch/csrc/autograd/FunctionsManual.h"


@dataclass(frozen=True)
class Helpers:
    """The functions that native folders define for derivative formulas.

    Args:
        defined: the functions that sources define for other files.
        declared: the functions that headers declare: new ones, and replacements of PyTorch's.
        headers: the headers, by their names in the folders.
        elsewhere: the functions that sources define for other files in other namespaces.
    """

    defined: tuple[Definition, ...] = ()
    declared: tuple[Definition, ...] = ()
    headers: tuple[Path, ...] = ()
    elsewhere: tuple[Definition, ...] = ()

    @property
    def names(self) -> frozenset[str]:
        """The names of ``defined``, which PyTorch's formulas may call, too."""
        return frozenset(each.name for each in self.defined)

    def header(self, theirs: str) -> str:
        """Return PyTorch's header ``theirs`` with includes of ``headers``; empty if there are no ``headers``.

        Functions in ``declared`` replace PyTorch's declarations of the same names.
        """
        if not self.headers:
            return ""
        names, kept, end = {each.name for each in self.declared}, "", 0
        for definition, statement in functions(theirs, Path(HEADER)):
            if definition.name in names and not statement.has_body:
                kept, end = kept + theirs[end : statement.start], statement.end
        return "".join([kept + theirs[end:], *(f"#include <ATen/native/{name}>\n" for name in self.headers)])


def helpers_of(natives: NativeFolders) -> Helpers:
    """Return the functions that native folders define for derivative formulas."""

    def read(names: Iterable[Path]) -> Iterator[Definition]:
        for name in names:
            source = read_text(natives.file(name), natives.text(name), name)
            every = source.declarations if name in headers else source.definitions
            # Templates count as local, but their file may instantiate them for other files.
            yield from (each for each in every if not each.is_local or each.is_template)

    headers = tuple(natives.helper_headers)
    found, declared = [*read(natives.helpers)], tuple(read(headers))
    defined = tuple(each for each in found if each.namespace == NAMESPACE)
    return Helpers(defined, declared, headers, tuple(each for each in found if each.namespace != NAMESPACE))


def name_in(function: str) -> str:
    """Return the name of a demangled function without its namespaces, parameters and template arguments."""
    text, count = function.replace("(anonymous namespace)", ""), 1
    while count:
        text, count = re.subn(r"<[^<>()]*>", "", text)  # arguments of templates, the inner ones first
    return text.partition("(")[0].split("::")[-1].strip()


def is_same(function: str, definition: Definition) -> bool:
    """Return whether ``function``, a demangled name with parameters, is the function that ``definition`` defines."""
    if name_in(function) != definition.name:
        return False
    text = re.sub(r", std::allocator<[^<>]*(<[^<>]*>)?[^<>]*>|(?<=\d)ul\b", "", function)
    declared = read_text(Path(), f"void {definition.name}{text[text.index('(') :]};").declarations
    return definition.is_template or any(each.key == definition.key for each in declared)


def fixed_functions(tree: Path) -> set[str]:
    """Return the names of PyTorch's functions that are inline, or called by torchgen's code for every operator.

    Args:
        tree: the folder with ``torch`` and ``torchgen``.
    """
    generator, header = tree / PACKAGED[DERIVATIVES], tree / "torch/include" / HEADER
    written = [*generator.glob("gen_*.py"), *generator.glob("templates/*")]
    called = {word for path in written for word in re.findall(r"\b(\w+)\(", path.read_text(encoding="utf-8"))}
    theirs = read_text(header, header.read_text(encoding="utf-8") if header.is_file() else "")
    return called & {each.name for each in theirs.declarations} | {each.name for each in theirs.definitions}


def heads(text: str) -> str:
    """Return the signatures of the functions in a source. Formulas depend on these, not on the bodies."""
    every = read_text(Path(), text).definitions
    return "; ".join(f"{each.namespace} {each} {each.is_local} {each.is_template}" for each in every)
