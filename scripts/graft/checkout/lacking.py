"""Headers of libraries that PyTorch's contain, and that no wheel has: which functions of a source need them."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cache

from .answer import Question, text_of
from .code import Code
from .statements import Kind, Statement, statements

_INCLUDE = re.compile(r"^[ \t]*#[ \t]*include[ \t]*[<\"]([^>\"\n]+)[>\"][^\n]*", re.M)
_OUTSIDE = re.compile(r"ideep(?:\.hpp|/.+)|mkl\w*\.h|xnnpack\.h|pytorch_qnnpack\.h")
# The names that such headers declare.
_DECLARED = re.compile(r"ideep|dnnl\w*|(?:mkl|MKL)_\w+|cblas_\w+|v[sdcz](?:[A-Z]\w*)|xnn_\w+|pytorch_q\w+")
# Statements that stay in each text, as nobody asks which function needs them.
_KEPT = {Kind.OTHER, Kind.TYPE}


class Lacking:
    """The headers that a torch lacks.

    Args:
        question: what is asked; its ``site`` has the torch.
    """

    def __init__(self, question: Question) -> None:
        self._question = question
        self.leads_to = cache(self._leads_to)
        self._included = cache(self._included_by)

    def headers(self, text: str) -> dict[str, str]:
        """Return the headers that a text includes and that cannot be compiled, each with the library's that it leads
        to.
        """
        return {name: outside for name in _INCLUDE.findall(text) if (outside := self.leads_to(name))}

    def without(self, text: str, headers: Collection[str], names: Collection[str]) -> str:
        """Return a text with blank lines in the place of includes, and of types and variables with these names."""
        for each in reversed(statements(text)):
            if each.kind in _KEPT and not each.names.isdisjoint(names):
                blank = re.sub(r"[^\n]", "", text[each.start : each.end])
                text = f"{text[: each.start]}{blank}{text[each.end :]}"
        return _INCLUDE.sub(lambda found: "" if found[1] in headers else found[0], text)

    def needing(self, text: str, headers: Collection[str]) -> set[str]:
        """Return what in a text needs one of the headers, and what uses that."""
        every = [each for each in statements(text) if each.kind in {Kind.FUNCTION, *_KEPT} and each.names]
        declared = {name for header in headers for name in self._declared(header)}
        found = {i for i, each in enumerate(every) if _needs(each, declared)}
        while True:
            names = {name for i in found for name in every[i].called}
            more = {i for i, each in enumerate(every) if i not in found and not names.isdisjoint(each.words)}
            if not more:
                return {name for i in found for name in every[i].names}
            found |= more

    def _leads_to(self, header: str) -> str:
        return next((name for name in self._all_from(header) if self._is_outside(name)), "")

    def _is_outside(self, header: str) -> bool:
        return bool(_OUTSIDE.fullmatch(header)) and self._question.installed(f"torch/include/{header}") is None

    def _all_from(self, header: str) -> Iterator[str]:
        """Yield a header, and all that it includes: some include each other."""
        left, seen = [header], {header}
        while left:
            yield (name := left.pop())
            more = [each for each in self._included(name) if each not in seen]
            seen |= {*more}
            left += more

    def _included_by(self, header: str) -> list[str]:
        is_followed = header.startswith("ATen/") and not header.startswith(("ATen/ops/", "ATen/core/"))
        return _INCLUDE.findall(self._text(header)) if is_followed else []

    def _text(self, header: str) -> str:
        """Return the text of a header of PyTorch: the checkout's, or that of the torch."""
        found = self._question.versions.after(f"aten/src/{header}") or self._question.installed(
            f"torch/include/{header}"
        )
        return text_of(found)

    def _declared(self, header: str) -> set[str]:
        """Return what a header declares, and those that it includes and that cannot be compiled either."""
        lacking = (name for name in self._all_from(header) if self.leads_to(name))
        return {name for each in lacking for found in statements(self._text(each)) for name in found.names}


def _needs(statement: Statement, declared: Collection[str]) -> bool:
    words = statement.words - statement.names
    return not words.isdisjoint(declared) or any(map(_DECLARED.fullmatch, words))


def text_without_lacking(
    lacking: Lacking, code: Code, kernels: Collection[str], refused: Collection[str]
) -> tuple[str, dict[str, str]]:
    """Return the text of a source for ``kernels``, as ``Code.text``, and the functions that it has no more, each with
    the header that it needs and the torch lacks.
    """
    text = code.text(kernels, refused)
    if not (headers := lacking.headers(text)):
        return text, {}
    needing = lacking.needing(text, headers)
    gone = {name: next(iter(headers.values())) for name in needing & (code.functions | {*kernels})}
    if needing:
        text = code.text({*kernels} - needing, {*refused, *needing})
    return lacking.without(text, headers, needing), gone
