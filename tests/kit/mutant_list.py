"""The mutants in tests/mutants: load and choose them, and check that they match the sources."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from graft.core.errors import UsageError


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
    def is_builder(self) -> bool:
        """Whether no operator has to be built for it."""
        return not self.file.startswith("native/")

    @property
    def is_emulated(self) -> bool:
        """Whether it is in a CUDA kernel, which is compiled as C++."""
        return self.file.startswith("native/cuda/")

    def place(self, repository: Path) -> int:
        """Return the first line of the right text.

        Raises:
            UsageError: the source does not exist, or does not contain the text exactly once.
        """
        source = repository / self.file
        text = source.read_text(encoding="utf-8") if source.is_file() else ""
        self.require_once(text)
        return text[: text.index(self.right)].count("\n") + 1

    def require_once(self, text: str) -> None:
        """Check that the right text can be replaced in the source.

        Raises:
            UsageError: it does not occur exactly once, or equals the wrong text.
        """
        count = text.count(self.right)
        if count != 1 or self.right == self.wrong:
            raise UsageError(
                f"{self.file}: {self.right!r} of mutant {self.number} occurs {count} times",
                cause="the source changed after the list was written" if count != 1 else "the wrong text is the same",
                todo="update the mutant in tests/mutants",
            )


def load_mutants(folder: Path) -> list[Mutant]:
    """Load all mutants from the YAML files in ``folder``.

    A file is a list of sources. Each has ``file`` and ``mutants`` with ``right`` and ``wrong``. The source or each
    mutant has ``tests``, arguments for pytest, and optionally ``operator``, the only affected operator.

    Raises:
        UsageError: a file has other keys.
    """
    found: list[Mutant] = []
    for path in sorted(folder.glob("*.yaml")):
        for source in yaml.safe_load(path.read_text(encoding="utf-8")):
            for each in source["mutants"]:
                fields = {"operator": "", **{key: value for key, value in source.items() if key != "mutants"}, **each}
                if fields.keys() != {"file", "right", "wrong", "tests", "operator"}:
                    raise UsageError(
                        f"{path.name}: {source['file']}: unknown keys, or no tests",
                        todo="a source has file, tests, operator and mutants; a mutant has right, wrong and these",
                    )
                fields["tests"] = tuple(shlex.split(fields["tests"]))
                found.append(Mutant(number=len(found) + 1, **fields))
    return found


def places(mutants: Sequence[Mutant], repository: Path) -> dict[Mutant, int]:
    """Return the line of each mutant.

    Raises:
        UsageError: lists all that do not match the sources.
    """
    found, stale = {}, []
    for mutant in mutants:
        try:
            found[mutant] = mutant.place(repository)
        except UsageError as error:
            stale.append(error)
    if stale:
        raise UsageError("\n".join(error.what for error in stale), cause=stale[0].cause, todo=stale[0].todo)
    return found


def choose(mutants: Sequence[Mutant], words: Sequence[str]) -> list[Mutant]:
    """Return the mutants with these numbers, ranges of numbers (``3-7``) and parts of file names; all if there are no
    words.

    Raises:
        UsageError: a word matches none.
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
