"""Find functions that need headers of libraries inside PyTorch's own, such as oneDNN. No wheel has these headers."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from functools import cache

from ..cpp.includes import INCLUDE, reached
from ..cpp.statements import Kind, statements
from .answer import Question, text_of
from .code import Code

# Patterns of such headers, and of the names that they declare.
_LIBRARIES = {
    re.compile(header): re.compile(names)
    for header, names in (
        (r"ideep(?:\.hpp|/.+)", r"ideep|dnnl\w*"),
        (r"mkl\w*\.h", r"(?:mkl|MKL)_\w+|cblas_\w+|v[sdcz][A-Z]\w*"),
        (r"xnnpack\.h", r"xnn_\w+"),
        (r"pytorch_qnnpack\.h", r"pytorch_q\w+"),
    )
}
# Statements that are kept in each text: which functions need them is not known.
_KEPT = {Kind.OTHER, Kind.TYPE}


class Lacking:
    """The headers that a torch lacks.

    Args:
        question: the two versions, and the torch.
    """

    def __init__(self, question: Question) -> None:
        self._question = question
        self.leads_to = cache(self._leads_to)
        self._included = cache(self._included_by)

    def headers(self, text: str) -> dict[str, str]:
        """Map each header that a text includes and that cannot be compiled to the library's header that it includes;
        empty if the folder is for any torch.
        """
        if not self._question.site:
            return {}
        return {name: outside for name in INCLUDE.findall(text) if (outside := self.leads_to(name))}

    def without(self, text: str, headers: Collection[str], names: Collection[str]) -> str:
        """Replace the includes of ``headers``, and types and variables called ``names``, by blank lines."""
        for each in reversed(statements(text)):
            if each.kind in _KEPT and not each.names.isdisjoint(names):
                blank = re.sub(r"[^\n]", "", text[each.start : each.end])
                text = f"{text[: each.start]}{blank}{text[each.end :]}"
        return INCLUDE.sub(lambda found: "" if found[1] in headers else found[0], text)

    def needing(self, text: str, headers: Mapping[str, str]) -> dict[str, str]:
        """Map the names in a text that need one of ``headers``, or use such a name, to the library's header."""
        every = [each for each in statements(text) if each.kind in {Kind.FUNCTION, *_KEPT} and each.names]
        found: dict[str, str] = {}
        for header, outside in headers.items():
            declared, of_library = self._declared(header), _names_of(outside)
            for each in every:
                words = each.words - each.names
                if not words.isdisjoint(declared) or any(map(of_library.fullmatch, words)):
                    found |= {name: outside for name in each.names if name not in found}
        while more := [
            (each, users) for each in every if (users := each.words & found.keys()) and not each.names <= found.keys()
        ]:
            found |= {name: found[min(users)] for each, users in more for name in each.names if name not in found}
        return found

    def _leads_to(self, header: str) -> str:
        return next((name for name in self._all_from(header) if self._is_outside(name)), "")

    def _is_outside(self, header: str) -> bool:
        return (
            any(each.fullmatch(header) for each in _LIBRARIES)
            and self._question.installed(f"torch/include/{header}") is None
        )

    def _all_from(self, header: str) -> Iterator[str]:
        """Yield a header, and all that it includes, directly or not, each once."""
        return reached([header], self._included)

    def _included_by(self, header: str) -> list[str]:
        is_followed = header.startswith("ATen/") and not header.startswith(("ATen/ops/", "ATen/core/"))
        return INCLUDE.findall(self._text(header)) if is_followed else []

    def _text(self, header: str) -> str:
        """Return the text of a header of PyTorch: the checkout's, or else the torch's."""
        found = self._question.versions.after(f"aten/src/{header}") or self._question.installed(
            f"torch/include/{header}"
        )
        return text_of(found)

    def _declared(self, header: str) -> set[str]:
        """Return the names that a header declares, with those of headers in it that cannot be compiled either."""
        lacking = (name for name in self._all_from(header) if self.leads_to(name))
        return {name for each in lacking for found in statements(self._text(each)) for name in found.names}


def _names_of(header: str) -> re.Pattern[str]:
    return next(names for each, names in _LIBRARIES.items() if each.fullmatch(header))


def text_without_lacking(
    lacking: Lacking, code: Code, kernels: Collection[str], refused: Collection[str]
) -> tuple[str, dict[str, str]]:
    """Return the text of a source for ``kernels``, as ``Code.text`` does, without functions that need a header that the
    torch lacks. Also map those that are left out, if they changed or are in ``kernels``, to their header.
    """
    text = code.text(kernels, refused)
    if not (headers := lacking.headers(text)):
        return text, {}
    needing = lacking.needing(text, headers)
    ours = {name for i in code.affected for name in code.statements[i].names}
    gone = {name: header for name, header in needing.items() if name in ours or name in kernels}
    if needing:
        text = code.text({*kernels} - needing.keys(), {*refused, *needing})
    return lacking.without(text, headers, needing), gone
