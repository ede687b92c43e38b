"""The mutants in tests/mutants: load, choose and list them, and check that they match the sources."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from graft.core.errors import UsageError
from graft.core.layout import REPOSITORY

LIST = REPOSITORY / "tests/mutants"


@dataclass(frozen=True)
class Mutant:
    """A wrong line.

    Args:
        number: its number in the list, from 1.
        file: the source, relative to the repository.
        right: a text that occurs once in the source.
        wrong: the text to replace it with.
        tests: arguments for pytest; one of these tests must fail.
        operator: the only operator that it affects, so that one build can include mutants of several; or empty.
    """

    number: int
    file: str
    right: str
    wrong: str
    tests: tuple[str, ...]
    operator: str = ""

    @property
    def is_emulated(self) -> bool:
        """Whether it is in a CUDA kernel, which is compiled as C++ by its tests."""
        return self.file.startswith("native/cuda/")

    @property
    def is_builder(self) -> bool:
        """Whether it is in the builder."""
        return self.file.startswith("scripts/")

    @property
    def is_installed(self) -> bool:
        """Whether its tests run on operators that are built and installed with it."""
        return not (self.is_emulated or self.is_builder)

    def problem(self, text: str) -> str:
        """Return why it cannot be applied to the source ``text``; empty if it can."""
        if (count := text.count(self.right)) == 1 and self.right != self.wrong:
            return ""
        return f"{self.file}: {self.right!r} of mutant {self.number} occurs {count} times, or equals the wrong text"


def load_mutants(folder: Path = LIST) -> list[Mutant]:
    """Load all mutants from the YAML files in ``folder``.

    A file is a list of sources. Each has ``file`` and ``mutants`` with ``right`` and ``wrong``. The source or each
    mutant has ``tests``, arguments for pytest, and optionally ``operator``, the only affected operator.
    """
    found: list[Mutant] = []
    for path in sorted(folder.glob("*.yaml")):
        for source in yaml.safe_load(path.read_text(encoding="utf-8")):
            shared = {key: value for key, value in source.items() if key != "mutants"}
            for each in source["mutants"]:
                fields = {"operator": "", **shared, **each}
                if fields.keys() != {"file", "right", "wrong", "tests", "operator"}:
                    raise UsageError(
                        f"{path.name}: {source['file']}: unknown keys, or no tests",
                        todo="a source has file, tests, operator and mutants; a mutant has right, wrong and these",
                    )
                fields["tests"] = tuple(shlex.split(fields["tests"]))
                found.append(Mutant(number=len(found) + 1, **fields))
    return found


def places(mutants: Sequence[Mutant], repository: Path = REPOSITORY) -> dict[Mutant, int]:
    """Return the line of each mutant. All must match the sources."""
    sources = {repository / mutant.file for mutant in mutants}
    texts = {path: path.read_text(encoding="utf-8") if path.is_file() else "" for path in sources}
    if stale := [problem for each in mutants if (problem := each.problem(texts[repository / each.file]))]:
        raise UsageError("\n".join(stale), todo="update these mutants in tests/mutants")
    return {each: texts[repository / each.file].partition(each.right)[0].count("\n") + 1 for each in mutants}


def choose(mutants: Sequence[Mutant], words: Sequence[str]) -> list[Mutant]:
    """Return the mutants with these numbers, ranges of numbers (``3-7``) and parts of file names; all if there are no
    words.
    """
    found: set[Mutant] = set()
    for word in words:
        first, _, last = word.partition("-")
        if first.isdigit() and (last or first).isdigit():
            some = {mutant for mutant in mutants if int(first) <= mutant.number <= int(last or first)}
        else:
            some = {mutant for mutant in mutants if word in mutant.file}
        if not some:
            raise UsageError(f"{word}: no such mutant", todo="`make test-mutants ARGS=--list` shows all")
        found |= some
    return [mutant for mutant in mutants if not words or mutant in found]


def change(mutant: Mutant) -> str:
    """Return the right and the wrong text, each in one line, shortened."""
    lines = (" ".join(text.split()) for text in (mutant.right, mutant.wrong))
    return " -> ".join(line if len(line) <= 60 else f"{line[:57]}..." for line in lines)
