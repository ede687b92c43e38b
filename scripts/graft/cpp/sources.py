"""C++ sources: the functions and kernels that each defines, and what it uses."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from itertools import takewhile
from pathlib import Path

from ..core.keys import COMPILED
from .functions import Definition, functions
from .statements import Kind, statements
from .tokens import blank, conditions, without_comments


@dataclass
class Source:
    """One source file.

    Args:
        path: the user's file.
        name: its path in the folder.
        text: its text.
        code: its text with blanks in place of comments; line breaks remain.
        definitions: function definitions.
        declarations: function declarations.
        is_vectorized: whether it is compiled once for each CPU capability.
    """

    path: Path
    name: Path
    text: str
    code: str
    definitions: list[Definition] = field(default_factory=list)
    declarations: list[Definition] = field(default_factory=list)
    is_vectorized: bool = False

    @property
    def is_compiled(self) -> bool:
        """Whether it is compiled itself: it is not a header."""
        return self.name.suffix in COMPILED

    @cached_property
    def pastes_names(self) -> bool:
        """Whether a macro pastes names together, so that definitions can be missed."""
        return re.search(r"^[ \t]*#[ \t]*define\b(?:\\\n|[^\n])*##", self.code, re.M) is not None

    @property
    def opens_namespaces(self) -> bool:
        """Whether a macro may open a namespace, so that the namespace of a definition may be wrong."""
        return re.search(r"^[ \t]*#[ \t]*define\b.*\bnamespace\b", self.code, re.M) is not None

    @cached_property
    def words(self) -> set[str]:
        """Every identifier outside of comments."""
        return set(re.findall(r"[A-Za-z_]\w*", self.code))

    def is_conditional(self, line: int) -> bool:
        """Return whether an ``#if`` surrounds a line."""
        return bool(conditions(self.code.split("\n")[: line - 1])[-1])

    def is_explained(self, line: int, word: str) -> bool:
        """Return whether the comment above ``line`` names ``word``."""
        above = takewhile(lambda text: text.lstrip().startswith("//"), reversed(self.text.split("\n")[: line - 1]))
        return any(word in text for text in above)

    @property
    def stub_macros(self) -> Iterator[tuple[int, str, str]]:
        """The line, the macro and the stub of each use of the macros of ATen/native/DispatchStub.h."""
        uses = re.finditer(r"\b((?:\w+_)?DISPATCH)\(((?:[^()]|\((?:[^()]|\([^()]*\))*\))*)\)", self.code)
        for use in uses:
            # The declaring macro has the type first, which may contain commas.
            stub = use[2].split(",")[-1 if use[1] == "DECLARE_DISPATCH" else 0].strip()
            yield self.code.count("\n", 0, use.start(1)) + 1, use[1], stub

    @property
    def stock_calls(self) -> Iterator[tuple[int, str]]:
        """The line and the name of each use of namespace ``at::native::stock``."""
        if re.search(r"\bnamespace\s+(?:\w+\s*::\s*)*stock\b", self.code):
            return  # the source has its own namespace ``stock``
        for use in re.finditer(r"(?<![\w:])(?:(?:::)?(?:at::)?native::)?stock::(\w+)", self.code):
            yield self.code.count("\n", 0, use.start()) + 1, use[1]

    @property
    def defines(self) -> dict[str, int]:
        """The lines of functions that it defines for other files, and of stubs that it has kernels for, by name."""
        functions = {re.sub(r"\s*,\s*", "_", each.name): each.line for each in self.definitions if not each.is_local}
        return functions | {stub: line for line, macro, stub in self.stub_macros if "REGISTER" in macro}


def defined_stubs(sources: Iterable[Source]) -> set[str]:
    """Return the dispatch stubs that sources define."""
    return {stub for source in sources for _, macro, stub in source.stub_macros if macro == "DEFINE_DISPATCH"}


def replacing_sources(sources: Sequence[Source], kernels: Collection[str]) -> dict[Path, Source]:
    """Return the sources that replace parts of PyTorch, by path. They may redefine PyTorch's functions.

    Such a source names one of ``kernels``, which replace PyTorch's, or registers a kernel for a stub that no other
    source defines, which is PyTorch's.
    """
    found = {source.path: source for source in sources if not source.words.isdisjoint(kernels)}
    own = defined_stubs(source for source in sources if source.path not in found)
    for source in sources:
        if any("REGISTER" in macro and stub not in own for _, macro, stub in source.stub_macros):
            found[source.path] = source
    return {path: source for path, source in found.items() if source.is_compiled}


def read_text(path: Path, text: str, name: Path | None = None) -> Source:
    """Read ``text``, the present or future content of the file ``path``."""
    source = Source(path, name or path, text, without_comments(text))
    for definition, statement in functions(text, path):
        (source.definitions if statement.has_body else source.declarations).append(definition)
    return source


def without_functions(text: str, names: Set[str]) -> str:
    """Return the text of a source with the functions ``names`` at namespace level, and instantiations of these
    templates, replaced by blanks.
    """
    for each in statements(text, is_strict=False):
        is_instance = each.kind is Kind.REGISTRATION and each.tokens[0] == "template" and names & each.words
        if is_instance or (each.kind is Kind.FUNCTION and names & each.names):
            text = f"{text[: each.start]}{blank(text[each.start : each.end])}{text[each.end :]}"
    return text
