"""Report on adopted operators: a table, changes since an earlier run, and a report for other programs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ..core.console import table

# The facts about one operator, as ``python -m graft.adopt`` prints them.
Line = Mapping[str, Any]


def verdict(operator: Line) -> str:
    """Return the verdict on an operator: ``whole``, ``needs a line`` or ``cannot be``."""
    return "cannot be" if operator["refusal"] else "needs a line" if operator["needs"] else "whole"


# The lines that an author has to add to adopt.toml, by need.
_LINES = {
    "writes": 'need a line in adopt.toml, `writes = {f = ["out"]}`, or `[]` if one writes none of its arguments',
    "pure": 'return tensors, and may write arguments, too: name these, `writes = {f = ["out"], "*" = []}` (*: others)',
    "fake": 'need a line in adopt.toml for torch.compile, `fakes = {f = "package.module:function"}`, or '
    '`{"*" = "torch.my_fakes"}` for a module with a function of each name, here the file python/my_fakes.py',
}


def shown(operators: Sequence[Line], left_out: Sequence[tuple[str, str]]) -> str:
    """Return a table with the function, verdict and kernels of each operator, then notes, totals, and the operators
    left out.
    """
    lines = [[each["full"], _function(each), verdict(each), each["kernels"]] for each in operators]
    notes = [f"  {each['full']}: {note}" for each in operators for note in _notes(each)]
    for need, line in _LINES.items():
        asked = [each for each in operators if need in each["needs"]]
        if names := dict.fromkeys(each["name"].rpartition("::")[2] for each in asked):
            notes.append(f"  {', '.join(names)} {line}")
        if need == "writes":
            notes += [f"    {each['schema'].rpartition('::')[2]}" for each in asked]
    verdicts = [verdict(each) for each in operators]
    total = ", ".join(f"{verdicts.count(kind)} {kind}" for kind in dict.fromkeys(sorted(verdicts, reverse=True)))
    last = [f"{len(lines)} operators: {total}", *lines_of_left_out(left_out)]
    return "\n".join([table([["operator", "becomes", "", "kernels"], *lines]), *notes, *last])


def lines_of_left_out(left_out: Sequence[tuple[str, str]]) -> list[str]:
    """Return a line for each reason with the names of what is no operator for it."""
    reasons = dict.fromkeys(reason for _, reason in left_out)
    return [f"no operator: {', '.join(name for name, why in left_out if why == each)}: {each}" for each in reasons]


def _function(operator: Line) -> str:
    if not operator["entry"]:
        return "-"
    return f"torch.{operator['function']}" + (f", x.{operator['function']}" if operator["is_method"] else "")


def _notes(operator: Line) -> Iterator[str]:
    if operator["refusal"]:
        yield f"{operator['refusal']}; {operator['todo']}"
    else:
        yield from operator["notes"]


def changes(before: Mapping[str, Line], operators: Sequence[Line]) -> str:
    """Return the differences from the operators that were adopted before; empty if there are none."""
    after = {each["full"]: each for each in operators}
    lines = [f"  new: {name}" for name in after if name not in before]
    lines += [f"  gone: {name}" for name in before if name not in after]
    for name, old in before.items():
        new = after.get(name, old)
        keys = ("schema", "signature", "entry") if old["schema"] == new["schema"] else ("schema", "signature")
        lines += [f"  {name}: {_told(old[key])} is now {_told(new[key])}" for key in keys if old[key] != new[key]]
    return "\n".join(["changed since it was adopted:", *lines]) if before and lines else ""


def _told(text: str) -> str:
    return text or "no entry"


def report_of(operators: Sequence[Line]) -> list[dict[str, Any]]:
    """Return the facts and the verdict on each operator, for other programs."""
    return [{**each, "verdict": verdict(each)} for each in operators]
