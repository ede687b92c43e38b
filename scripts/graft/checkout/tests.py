"""PyTorch's own tests of the operators that a checkout changes: the command that runs them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable
from pathlib import Path

from ..core.files import write_if_changed
from .base import Base
from .repository import Repository

TEST = "test/test_ops.py"

_OPINFOS = ("torch/testing/_internal/common_methods_invocations.py", "torch/testing/_internal/opinfo/definitions")
_NAME = re.compile(r"\b\w+Info\(\s*[\"']([\w.]+)[\"']")
# The most names in the command.
_MOST = 8


def command_of_tests(repository: Repository, base: Base, python: str, operators: Collection[str], folder: Path) -> str:
    """Return the command that runs PyTorch's tests of ``operators`` with the torch of ``python``; empty if there are
    none. If the torch was built from another commit than BASE, the tests of that commit are written below ``folder``.
    """
    names = opinfo_names(repository.path, operators)
    file = repository.path / TEST
    if base.wheel and base.wheel != base.commit and (text := repository.texts(base.wheel, [TEST])[TEST]):
        file = folder / TEST
        file.parent.mkdir(parents=True, exist_ok=True)
        write_if_changed(file, text)
    if not names or not file.is_file():
        return ""
    return shlex.join([python, str(file), *(word for name in names[:_MOST] for word in ("-k", name))])


def opinfo_names(tree: Path, operators: Iterable[str]) -> list[str]:
    """Return the names of OpInfos for ``operators``, or for the operators that these are a backward or variant of.
    Names of tests contain them.
    """
    paths = [tree / name for name in _OPINFOS]
    files = [file for path in paths for file in (path.glob("*.py") if path.is_dir() else [path]) if file.is_file()]
    names = {name for file in files for name in _NAME.findall(file.read_text(encoding="utf-8", errors="replace"))}
    wanted = {part for operator in operators for part in _spellings(operator.partition(".")[0])}
    # The OpInfo of linalg_cross is "linalg.cross", and that of gelu is "nn.functional.gelu".
    parts = {part for name in names for part in (name.rpartition(".")[2], name.replace(".", "_"))}
    return sorted(parts & wanted)


def _spellings(operator: str) -> set[str]:
    plain = operator.strip("_")
    return {operator, plain, re.sub(r"_(?:double_)?backward(?:_\w+)?$|_interface$", "", plain)}
