"""Take C++ that changes: headers that replace the torch's, sources that use them, and the code of these to compile."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import cache

from ..base.base import Base
from ..core.errors import UsageError
from ..cpp.includes import INCLUDE, reached
from . import headers as of_headers
from .answer import Answer, Question, text_of
from .callers import MOST_USERS, OF_CAPABILITIES, Users, add_callers, users_compiled
from .code import Code
from .lacking import Lacking, text_without_lacking
from .operators import Operators
from .sources import ATEN, NATIVE, in_wheel, is_header, is_source, place_of, why_left

_INSIDE = "a header of a library that is inside PyTorch's"

# Headers of PyTorch by their paths below torch/include.
_PYTORCH_S = ("ATen/", "c10/", "torch/")
# The guard that setup.py writes around the headers that it installs.
_GUARD = re.compile(r"#if !defined\(TORCH_STABLE_ONLY\) [^\n]*\n(.*)\n#else\n#error [^\n]*\n#endif [^\n]*\n", re.S)


def take_headers(question: Question, left: Mapping[str, str]) -> tuple[Answer, dict[str, set[str]]]:
    """Take the headers that changed and are not ``left`` out. Map those laid over to the names that changed in them."""
    answer, found = Answer(question), dict[str, set[str]]()
    changed = [name for name in question.there(filter(is_header, question.versions.changed)) if name not in left]
    for name, content in question.versions.before(changed).items():
        before, after = text_of(content), question.after(name)
        if content is None and name.startswith(f"{NATIVE}/"):
            answer.put_whole(place_of(name), name)
        elif of_headers.is_same(before, after):
            continue
        elif question.site is None:
            answer.left[name] = "a native folder has no headers of PyTorch; `make develop SOURCE=...` lays it over"
        else:
            there = _installed(question, name)
            faults = [of_headers.refused(name, text, after) for text in dict.fromkeys([before, there]) if text]
            if why := next(filter(None, faults), ""):
                answer.left[name] = why
            else:
                answer.overlay[in_wheel(name)] = after.encode(), name
                found[name] = Code(there or before, after).names
    # Replace either all changed headers of vectors, or none.
    faults = [name for name in (*left, *answer.left) if "/cpu/vec/" in name]
    for name in [each for each in found if "/cpu/vec/" in each and faults]:
        del answer.overlay[in_wheel(name)], found[name]
        answer.left[name] = f"{faults[0]} cannot be laid over, and headers of vectors go together"
    return answer, found


def _installed(question: Question, name: str) -> str:
    text = text_of(question.installed(in_wheel(name)))
    guarded = _GUARD.fullmatch(text)
    return guarded[1] if guarded else text


def changed_codes(
    question: Question, left: Mapping[str, str], headers: Mapping[str, set[str]]
) -> tuple[Answer, dict[str, Code]]:
    """Return the sources that changed and are not ``left`` out, and those to compile since they use ``headers`` that
    changed, by path. The answer has the users that are not compiled.

    Raises:
        UsageError: FILES names a file that cannot be compiled; or more than ``MOST_USERS`` sources use a header that
            changed, and no changed source includes it.
    """
    answer = Answer(question)
    sources = [name for name in question.there(filter(is_source, question.versions.changed)) if name not in left]
    before = question.versions.before(sources)
    asked = _asked(question)
    names: dict[str, set[str]] = {name: set() for name in (*sources, *asked)}
    users = Users(question)
    for header, changed in headers.items():
        including = of_headers.users(question.tree, [header], sources)
        others = users.of_header(header, changed) - {*sources}
        chosen = _chosen(answer, header, others - {*asked}, is_asked=bool(including or asked))
        for name in (*including, *chosen, *sorted(others & {*asked})):
            names.setdefault(name, set()).update(changed)

    def code(name: str) -> Code:
        text = question.after(name)
        return Code(text_of(before[name]) if name in before else text, text, names[name])

    codes = {name: code(name) for name in names}
    add_callers(answer, users, names, codes, code)
    for name in asked:
        if not codes[name].affected:
            answer.said.append(f"FILES: nothing in {place_of(name)} uses what changed elsewhere")
    return answer, codes


def _asked(question: Question) -> list[str]:
    """Return the sources that FILES names. Raise UsageError if one cannot be compiled."""
    asked, faults = [f"{ATEN}/{name}" for name in question.files], []
    for name in asked:
        if not (question.tree / name).is_file():
            faults.append(f"FILES: {question.tree / name}: no such file")
        elif not is_source(name):
            faults.append(f"FILES: {question.tree / name}: no source of kernels")
        elif why := why_left(name, question.tree, has_cuda=question.has_cuda):
            faults.append(f"FILES: {question.tree / name}: {why}")
    if faults:
        raise UsageError("\n".join(faults), todo="write paths below aten/src/ATen, as native/cpu/ReduceOpsKernel.cpp")
    return asked


def _chosen(answer: Answer, header: str, others: Collection[str], *, is_asked: bool) -> list[str]:
    """Return which of the unchanged sources ``others`` to compile for a header. Note if the rest keeps the old one."""
    named, shown = place_of(header), [name.removeprefix(f"{ATEN}/") for name in sorted(others)][:MOST_USERS]
    if not others and not is_asked:
        answer.said.append(f"{named}: laid into torch/include; nothing uses what changed there")
    elif others and is_asked:
        keep = f"{named}: {len(others)} other sources of PyTorch keep the old one"
        answer.said.append(f'{keep}; FILES="{shown[0]} ..." compiles them')
    elif len(others) > MOST_USERS:
        raise UsageError(
            f"{named}: no source that changed includes it, and {len(others)} others use what changed there",
            todo=f'set FILES to those to compile with it, for example FILES="{" ".join(shown)}"',
        )
    return [] if is_asked else sorted(others)


def take_sources(users: Answer, codes: Mapping[str, Code], operators: Operators) -> tuple[Answer, Operators]:
    """Take from each source the code that the entries need, and the code that registers itself. Add it to ``users``,
    which has what is not compiled with them. Also return the operators that have all their kernels.
    """
    question, answer, without = users.question, users | Answer(users.question), set[str]()
    kernels, refused = operators.kernels, operators.refused_kernels
    site, lacking = question.site, Lacking(question)
    macros = Base(site, site).lacking if codes and site and (site / "torch/lib").is_dir() else {}
    used = kernels.union(*(code.used for code in codes.values()))
    for name, code in codes.items():
        others = set[str]().union(*(each.used for other, each in codes.items() if other != name))
        own = kernels | (set() if name.startswith(OF_CAPABILITIES) else code.shared & others - refused)
        gone: dict[str, str] = {}
        if code.is_new and refused.isdisjoint(code.functions):
            answer.put_whole(place_of(name), name)
        else:
            text, gone = text_without_lacking(lacking, code, own, refused)
            answer.put(place_of(name), name, text)
            without |= gone.keys()
            answer.left |= {f"{name}: {each}": f"it needs {header}, {_INSIDE}" for each, header in gone.items()}
        for statement in code.registrations:
            answer.operators |= _operators_named(statement.words, operators.texts)
        is_taken = place_of(name) in answer.files
        for macro in sorted(code.under(macros)) if is_taken else ():
            why = f"PyTorch was built with it, and this is not: the torch lacks {macros[macro]}"
            answer.left[f"{name}: #if {macro}"] = why
        why = "only its file sees it now, and native_functions.yaml names it: PyTorch would not link"
        answer.left |= {f"{name}: {each}": why for each in sorted(filter(operators.are_naming, code.hidden))}
        answer.left |= {f"{name}: {each}": "removed; the torch that is built on keeps it" for each in code.removed}
        why = "PyTorch's libraries define these operators when they start"
        answer.left |= {f"{name}: TORCH_LIBRARY({each})": why for each in code.libraries if not code.is_new}
        keeping = (code.edited - used if is_taken else code.functions) - refused - gone.keys()
        if alone := sorted(each for each in keeping if f"{name}: {each}" not in answer.left):
            why = "only PyTorch's own code calls this directly, and keeps PyTorch's"
            answer.left[f"{name}: {', '.join(alone)}"] = why
        is_told = any(f"{each}:".startswith(f"{name}:") for each in answer.left)
        is_edited = name in question.versions.changed
        if is_edited and not is_taken and code.affected and not is_told and refused.isdisjoint(code.names):
            answer.left[name] = "nothing that is built uses what changed"
    answer.said += users_compiled(answer, codes)
    return answer, operators.without(without)


def take_lacking_headers(question: Question, taken: Answer) -> Answer:
    """Take headers that the ``taken`` files include, and that the checkout has but the torch lacks."""
    answer = Answer(question)
    if (site := question.site) is None:
        return answer

    def place(name: str) -> str:
        return f"aten/src/{name}" if name.startswith("ATen/") else name

    @cache
    def lacking(name: str) -> bytes | None:
        key = f"torch/include/{name}"
        is_there = (site / key).exists() or place_of(place(name)) in taken.files or key in taken.overlay
        return None if is_there or not name.startswith(_PYTORCH_S) else question.versions.after(place(name))

    contents = [*taken.files.values(), *(content for content, _ in taken.overlay.values())]
    named = {name for content in contents for name in INCLUDE.findall(text_of(content))}
    for name in reached(named, lambda name: INCLUDE.findall(text_of(lacking(name)))):
        if content := lacking(name):
            answer.overlay[f"torch/include/{name}"] = content, place(name)
    return answer


def _operators_named(words: Collection[str], ours: Mapping[str, str]) -> set[str]:
    """Return the operators whose names begin a dispatch stub's or kernel's name: ``lerp`` for ``lerp_stub``."""
    roots = {name.partition(".")[0] for name in ours}
    begun = ([word[: end.start()] for end in re.finditer(r"_|$", word)] for word in words)
    return {max(found, key=len) for each in begun if (found := [root for root in each if root in roots])}
