"""Take functions of FunctionsManual.cpp that changed, or that formulas need and the torch lacks."""

from __future__ import annotations

import re
from collections.abc import Collection

from ..cpp.statements import Kind, statements
from ..fork.apply import HELPERS_HEADER, HELPERS_SOURCE, YAML_FILES
from ..inputs import native
from ..inputs.helpers import fixed_functions
from ..inputs.native import DERIVATIVES
from .answer import Answer, Question, text_of
from .code import Code

# The prefix of the folder's versions of functions that PyTorch keeps.
_OWN = "graft_"


def take_helpers(question: Question, formulas: Collection[str]) -> Answer:
    """Take these functions, the local code of the file that they need, and their declarations. ``formulas`` names the
    operators whose formulas are built.
    """
    answer = Answer(question)
    (before, after), header = ((question.before(n), question.after(n)) for n in (HELPERS_SOURCE, HELPERS_HEADER))
    lacking = _lacking(question, formulas, header[1])
    if before == after and header[0] == header[1] and not lacking:
        return answer
    code = Code(before, after)
    fixed = code.functions & fixed_functions(question.site) if question.site else set()
    functions = code.functions - fixed
    text = _renamed(code.text(functions | lacking, has_own=False), fixed)
    answer.put(str(native.HELPERS), HELPERS_SOURCE, text)
    answer.put(str(native.HELPERS_HEADER), HELPERS_HEADER, Code(*header).declarations(lacking))
    for name in sorted(fixed & code.edited):
        rest = "; functions for formulas that are built call the new one" if f"{_OWN}{name}" in text else ""
        answer.left[f"{HELPERS_SOURCE}: {name}"] = f"the code of every operator calls PyTorch's{rest}"
    every = question.entries(YAML_FILES[DERIVATIVES])
    answer.operators |= {name for name, text in every.items() if not functions.isdisjoint(_words(text))}
    return answer


def _renamed(text: str, fixed: Collection[str]) -> str:
    """Prefix the names of the functions ``fixed`` in a text, and make them static, since PyTorch's stay."""
    for each in reversed(statements(text)):
        if each.kind is Kind.FUNCTION and each.tokens[0] != "template" and not each.names.isdisjoint(fixed):
            text = f"{text[: each.start]}static {text[each.start :]}"
    return re.sub(rf"\b(?:{'|'.join(fixed)})\b", rf"{_OWN}\g<0>", text) if fixed else text


def _lacking(question: Question, formulas: Collection[str], header: str) -> set[str]:
    """Return the functions that formulas name, and that the checkout declares and the torch does not."""
    there = question.installed(f"torch/include/{HELPERS_HEADER}")
    if there is None or not formulas:
        return set()
    written = question.entries(YAML_FILES[DERIVATIVES])
    named = {word for name in formulas for word in _words(written[name])}
    return named & _words(header) - _words(text_of(there))


def _words(text: str) -> set[str]:
    return {*re.findall(r"\w+", text)}
