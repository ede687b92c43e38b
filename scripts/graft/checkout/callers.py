"""Find the sources that call a function of another source: they include a header that declares it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import cache, cached_property

from ..cpp.includes import INCLUDE
from ..fork.apply import YAML_FILES
from ..inputs.native import FUNCTIONS
from . import headers as of_headers
from .answer import Answer, Question
from .code import Code
from .sources import ATEN, FUNCTORCH, NATIVE, is_header, is_source, place_of, why_left

# The most unchanged sources that are compiled for a changed header or function without being asked for.
MOST_USERS = 8
# Compiled once for each CPU capability: functions that other files call cannot be there.
OF_CAPABILITIES = f"{NATIVE}/cpu/"


class Users:
    """Finds the sources of a checkout that use names of a header.

    Args:
        question: the two versions, and the torch.
    """

    def __init__(self, question: Question) -> None:
        self._question = question
        self._including = cache(self._texts_including)

    def of_header(self, header: str, names: Collection[str]) -> set[str]:
        """Return the sources that include a header and use one of ``names``."""
        word = re.compile(rf"\b(?:{'|'.join(map(re.escape, sorted(names)))})\b") if names else None
        texts = {name: text for name, text in self._including(header).items() if not word or word.search(text)}
        return {name for name, text in texts.items() if Code(text, text, names).affected}

    def of_function(self, source: str, function: str) -> set[str]:
        """Return the other sources that use a function of ``source``, if a header in ``source`` declares it."""
        if function in self._named_by_entries:
            return set()
        included = [f"aten/src/{each}" for each in INCLUDE.findall(self._question.after(source))]
        call = re.compile(rf"\b{function}\s*\(")
        headers = [each for each in included if is_header(each) and call.search(self._question.after(each))]
        return {user for each in headers for user in self.of_header(each, {function})} - {source}

    @cached_property
    def _named_by_entries(self) -> set[str]:
        """The names in native_functions.yaml. Operators call these kernels, so callers need not be compiled again."""
        return {*re.findall(r"\w+", self._question.after(YAML_FILES[FUNCTIONS]))}

    @cached_property
    def _sources(self) -> list[str]:
        tree, has_cuda = self._question.tree, self._question.has_cuda
        folders = (tree / each for each in (NATIVE, FUNCTORCH))
        found = (path for folder in folders for pattern in ("*.cpp", "*.cu") for path in folder.rglob(pattern))
        every = filter(is_source, (path.relative_to(tree).as_posix() for path in found))
        return sorted(each for each in every if not why_left(each, tree, has_cuda=has_cuda))

    def _texts_including(self, header: str) -> dict[str, str]:
        names = of_headers.users(self._question.tree, [header], self._sources)
        return {name: self._question.after(name) for name in sorted(names)}


def add_callers(
    answer: Answer, users: Users, names: dict[str, set[str]], codes: dict[str, Code], code_of: Callable[[str], Code]
) -> None:
    """Add the sources that call changed functions of ``codes``, directly or not. If more than ``MOST_USERS`` unchanged
    ones call a function, add no new ones for it, and note it.

    Args:
        answer: of this step; receives what is not compiled.
        users: finds the sources.
        names: by source, the names that changed elsewhere.
        codes: the sources.
        code_of: makes a source's code with its ``names``.
    """
    done = set[tuple[str, str]]()
    while answer.question.site:
        among = [(name, each) for name in codes for each in codes[name].shared if not name.startswith(OF_CAPABILITIES)]
        if not (fresh := sorted({*among} - done)):
            break
        done |= {*fresh}
        for name, function in fresh:
            calling = users.of_function(name, function)
            others = calling - answer.question.versions.changed.keys()
            chosen = calling if len(others) <= MOST_USERS else calling & codes.keys()
            for user in sorted(each for each in chosen if function not in names.get(each, ())):
                names.setdefault(user, set()).add(function)
                codes[user] = code_of(user)
            if rest := sorted(each.removeprefix(f"{ATEN}/") for each in calling - chosen):
                keep = f"{len(rest)} sources of PyTorch that call it keep PyTorch's"
                answer.left[f"{name}: {function}"] = f'{keep}; FILES="{" ".join(rest[:MOST_USERS])}" compiles these'


def users_compiled(answer: Answer, codes: Collection[str]) -> list[str]:
    """Return a line with the sources of ``answer`` that did not change and were not asked for, if there are any."""
    question = answer.question
    told = {*question.versions.changed, *(f"{ATEN}/{each}" for each in question.files)}
    more = sorted(place for name in codes if name not in told and (place := place_of(name)) in answer.files)
    return [f"also compiled, since they use what changed: {', '.join(more)}"] if more else []
