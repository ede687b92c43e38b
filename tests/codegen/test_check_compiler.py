"""What ``make check`` leaves to the compiler: its messages name the user's file and line of each such mistake."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from corpus import BROKEN, compiled, headers_of
from graft.codegen.__main__ import generate
from graft.compile.diagnostics import diagnostics
from graft.compile.messages import digest
from graft.inputs.native import load_natives
from helpers import write

LEFT = [case for case in BROKEN if "compiler" in case]
TEXTS = ("native_functions.yaml", "derivatives.yaml")


def renamed(number: int, case: dict[str, str]) -> dict[str, str]:
    """Return the case with a name of its own for its operator, since all are compiled together."""
    (name,) = re.findall(r"func: (\w+)\(", case["native_functions.yaml"])
    own = f"{name}{chr(ord('a') + number)}"
    return {key: re.sub(rf"\b{name}(?=\b|_)", own, text, flags=re.I) for key, text in case.items()}


CASES = [renamed(number, case) for number, case in enumerate(LEFT)]


def file_of(case: dict[str, str]) -> str:
    """Return the name of the source of a case."""
    return f"{case['mistake'].replace(' ', '_')}.cpp"


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("native")
    files = {name: "".join(case[name] for case in CASES) for name in TEXTS}
    files |= {file_of(case): case[name] for case in CASES for name in case if name.endswith(".cpp")}
    return write(folder, files)


@pytest.fixture(scope="module")
def said(native: Path, base: Path, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What the builder says of the compiler's output."""
    out = tmp_path_factory.mktemp("generated")
    generate(base, load_natives([native]), out)
    lines = []
    units = sorted(path.parent for path in (out / "units").glob("*/library.cpp"))
    own = [native / file_of(case) for case in CASES if "cpp" in case["compiler"]]
    for source, folder in [*((unit / "library.cpp", unit) for unit in units), *((path, units[0]) for path in own)]:
        include = base / "torch/include"
        paths = [*headers_of(folder), out / "wheel/torch/include", out / "include", include]
        paths.append(include / "torch/csrc/api/include")
        # In parts, since the digest lists only the first errors of a file.
        for part in re.split(r"(?m)^(?=In file included|\S+: In )", compiled(source, paths)):
            lines += digest(diagnostics(part.splitlines(), native), load_natives([native]), paths)
    return lines


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case["mistake"] for case in LEFT])
def test_mistake_is_told_at_the_user_s_line(number: int, native: Path, said: list[str]) -> None:
    case = CASES[number]
    file, line, message = case["compiler"].split(":", 2)
    before = sum(other["derivatives.yaml"].count("\n") for other in CASES[:number])
    if file == "derivatives.yaml":
        (name,) = re.findall(r"name: (\w+)\(", case[file])
        place = rf"{native}/{file}:{before + int(line)}:\d+: error: a formula of {name} is not valid C\+\+:"
    else:
        place = f"{native}/{file_of(case)}:{line}:"
    assert [text for text in said if re.match(place, text) and message.strip() in text]
