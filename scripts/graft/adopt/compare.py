"""``graft adopt --compare``: compare adopted operators with the extension's, on the inputs of samples.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from ..core.console import Steps, say, table
from ..core.errors import GraftError, UsageError
from ..core.wording import quoted
from ..inputs.native import SAMPLES
from .dispatcher import answer_of
from .folder import record_of

# The ways to run an operator, in the table's order, and the verdicts that are no error.
WAYS = ("call", "script", "trace", "compile", "export", "vmap", "grad", "leaf", "version", "opcheck")
_RIGHT = ("same", "only here", "-", "refused", "")


def compare(folder: Path, modules: Sequence[str], python: str) -> None:
    """Run each adopted operator and the extension's in each way, and print a table of the differences.

    Raises:
        GraftError: an operator crashes, or differs from the extension's where that is right.
    """
    operators = record_of(folder).get("operators", {})
    if not operators:
        raise UsageError(
            f"{folder}: adopt has written nothing there", todo="adopt the package first, without --compare"
        )
    if not all("kept" in each for each in operators.values()):
        todo = f"adopt it again: `graft adopt --native {folder}`"
        raise UsageError(f"{folder}: an earlier Graft wrote it, and recorded less", todo=todo)
    file = folder / SAMPLES
    if not file.is_file():
        first = next((each["entry"] for each in operators.values() if each["entry"]), "f(Tensor x, int n) -> Tensor")
        lines = (
            f"write it; for `{first}`:",
            f"    def {_function(first)}(make):  # make(3, 4): a tensor",
            "        yield ...",
        )
        raise UsageError(f"{file}: there are no inputs to call the operators with", todo="\n".join(lines))
    with Steps().step("call the operators beside the extension's"):
        functions = [f"torch.{path.stem}" for path in folder.glob("python/_adopted_*.py")]  # each registers its own
        request = {"operators": operators, "modules": [*modules, *functions], "samples": str(file)}
        found, done = answer_of("compare_child.py", request, python)
        if found is None:
            todo = f"`make develop NATIVE={folder} PYTHON={python}` adds the operators; correct what it says"
            raise UsageError(f"{file}: the process ended", cause=quoted(done.stdout.strip()[-2000:]), todo=todo)
    say(_told(found, [name for name, each in operators.items() if each["entry"]]))
    if wrong := [name for name, ways in found.items() if ways is None or _wrong(ways)]:
        raise GraftError(f"{', '.join(wrong)}: not as the extension's")


def _function(entry: str) -> str:
    return entry.partition("(")[0].replace(".", "_")


def _wrong(ways: Mapping[str, str]) -> dict[str, str]:
    return {way: verdict for way, verdict in ways.items() if verdict not in _RIGHT}


def _told(found: Mapping[str, dict[str, str] | None], operators: Sequence[str]) -> str:
    lines = [
        [name, *(_short((ways or {"call": "crash"}).get(way, "")) for way in WAYS)] for name, ways in found.items()
    ]
    notes = [f"  {name}: {way}: {text}" for name, ways in found.items() for way, text in _wrong(ways or {}).items()]
    untried = [name for name in operators if name not in found]
    last = [f"not called, since {SAMPLES} has no inputs: {', '.join(untried)}"] if untried else []
    if refused := [name for name, ways in found.items() if (ways or {}).get("call") == "refused"]:
        last.append(f"refused by the extension's own on the CPU, or random there: an input of {', '.join(refused)}")
    return "\n".join([table([["operator", *WAYS], *lines]), *notes, *last])


def _short(verdict: str) -> str:
    return verdict if verdict in (*_RIGHT, "crash") else "differs"
