"""`make test-mutants`: its report on wrong lines, and that the list matches the sources and covers all of them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping
from importlib.util import cache_from_source
from pathlib import Path

import pytest
import yaml
from graft.core.errors import UsageError
from graft.core.layout import REPOSITORY
from helpers import Capture, Patch, refused, write

from tests.kit import mutants as judging
from tests.kit.kept import Kept
from tests.kit.mutant_list import Mutant, choose, load_mutants, places
from tests.kit.mutants import (
    BROKEN,
    CRASHED,
    HUNG,
    KILLED,
    REFUSED,
    SURVIVED,
    Copy,
    Fate,
    conclude,
    found_before,
    judge,
    rounds,
    without_false_alarms,
)
from tests.kit.parts import TestsFailed as Failed  # otherwise pytest would collect it

CODE = "import os\ndef double(x):\n    return x + x\ndef unused(x):\n    return x\n"
TEST = "from code_of import double\ndef test_it():\n    assert double(3) == 6\n"


def copy_in(folder: Path, build: Callable[[], tuple[int, str]] = lambda: (0, ""), code: str = CODE) -> Copy:
    """A repository with a function and its test."""
    write(folder, {"code_of.py": code, "test_it.py": TEST, "native/A.cpp": "right\n", "pytest.ini": "[pytest]\n"})
    variables: Mapping[str, str] = {"PYTHONDONTWRITEBYTECODE": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return Copy(folder, Path(sys.executable), lambda _: variables, build)


def outcome_of(copy: Copy, mutant: Mutant) -> Fate:
    ((_, result),) = copy.judge([mutant])
    return result


def mutant(right: str, wrong: str, file: str = "code_of.py", number: int = 1) -> Mutant:
    return Mutant(number, file, right, wrong, ("test_it.py",))


@pytest.fixture(autouse=True)
def short_limit(monkeypatch: Patch) -> None:
    monkeypatch.setattr(judging, "_LIMIT", "10s")


@pytest.mark.parametrize(
    ("wrong", "outcome", "by"),
    [
        ("return x * x", KILLED, "test_it.py::test_it"),
        ("return 2 * x", SURVIVED, "test_it.py"),
        ("return os.abort()", CRASHED, "test_it.py::test_it"),
        ("return __import__('time').sleep(600)", HUNG, "test_it.py::test_it"),
        ("return (", BROKEN, "pytest exits with 2"),
    ],
)
def test_what_comes_of_a_wrong_line(wrong: str, outcome: str, by: str, tmp_path: Path) -> None:
    result = outcome_of(copy_in(tmp_path), mutant("return x + x", wrong))
    assert (result.outcome, result.by.startswith(by)) == (outcome, True)
    assert (tmp_path / "code_of.py").read_text() == CODE


def test_tests_that_fail_anyway_say_nothing(tmp_path: Path) -> None:
    copy = copy_in(tmp_path)
    right, wrong = mutant("return x + x", "return x * x"), mutant("return x\n", "return None\n", number=2)
    results = {each: Fate(KILLED, f"test_it.py::test_{n}") for n, each in enumerate((right, wrong))}
    write(tmp_path, {"test_it.py": "def test_0(): pass\ndef test_1(): raise ValueError('no - way')\n"})
    checked = without_false_alarms(results, copy)
    assert checked[right] == results[right]
    assert checked[wrong] == Fate(BROKEN, "fails without the mutant, too: test_it.py::test_1")
    # A test that does not exist proves nothing, either.
    lost = {right: Fate(KILLED, "test_it.py::test_2")}
    assert without_false_alarms(lost, copy)[right].outcome is BROKEN


def test_wrong_lines_of_several_operators_share_a_build(tmp_path: Path) -> None:
    built: list[str] = []

    def build() -> tuple[int, str]:
        built.append("".join((tmp_path / f"native/{name}.cpp").read_text() for name in "AB"))
        return "refused" in built[-1], "A.cpp:1: error: refused"

    copy = copy_in(tmp_path, build)
    write(tmp_path, {"native/B.cpp": "right\n"})
    texts = [("A", "refused", "a"), ("A", "wrong", "a"), ("B", "another", "b"), ("B", "third", "")]
    mutants = [Mutant(0, f"native/{name}.cpp", "right", text, ("test_it.py",), op) for name, text, op in texts]
    outcomes = [(mutant.wrong, result.outcome) for group in rounds(mutants) for mutant, result in copy.judge(group)]
    assert outcomes == [
        ("third", SURVIVED),  # without an operator, so it is alone
        ("refused", REFUSED),
        ("another", SURVIVED),
        ("wrong", SURVIVED),
    ]
    assert built == ["right\nthird\n", "refused\nanother\n", "refused\nright\n", "right\nanother\n", "wrong\nright\n"]


def test_wrong_lines_of_the_builder_need_no_build(tmp_path: Path) -> None:
    def build() -> tuple[int, str]:
        raise AssertionError("built")

    copy = copy_in(tmp_path, build)
    write(tmp_path, {"pytest.ini": "[pytest]\npythonpath = scripts\n", "scripts/code_of.py": CODE})
    (tmp_path / "code_of.py").unlink()
    copy.variables = lambda _: {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    texts = ["return x * x", "return 2 * x"]
    results = [outcome_of(copy, mutant("return x + x", text, "scripts/code_of.py")) for text in texts]
    assert [each.outcome for each in results] == [KILLED, SURVIVED]
    assert judge([], {}, copy, Kept(tmp_path / "kept")) == {}
    # Another text may have the same size, and be written in the same second.
    assert not Path(cache_from_source(str(tmp_path / "scripts/code_of.py"))).exists()


def test_survivors_are_a_table_and_an_error(tmp_path: Path, capsys: Capture) -> None:
    mutants = [
        mutant("return x + x", "return x * x", number=1),
        mutant("return x\n", "return None\n", number=2),
        mutant("right", "wrong", "native/A.cpp", number=3),
    ]
    copy = copy_in(tmp_path)
    lines = places(mutants, tmp_path)
    kept = Kept(tmp_path / "build/kept.json")
    results = judge(mutants, lines, copy, kept)
    with pytest.raises(Failed, match="2 mutants survived"):
        conclude(results, lines)
    captured = capsys.readouterr()
    assert "3 mutants: 1 killed, 2 SURVIVED" in captured.out
    assert re.search(r"^2 +code_of\.py:5 +SURVIVED +return x -> return None +test_it\.py$", captured.out, re.M)
    assert "code_of.py:3" not in captured.out
    assert re.search(r"^\(\d/3\) code_of\.py:3 \d+\.\d s killed: test_it\.py::test_it \[1\]$", captured.err, re.M)
    conclude({mutants[0]: results[mutants[0]]}, lines)


def test_mutants_that_were_found_are_not_tried_again(tmp_path: Path) -> None:
    """After a stop, the check for tests that fail anyway is of all."""
    mutants = [mutant("return x + x", "return x * x"), mutant("return x\n", "return None\n", number=2)]
    kept, built = Kept(tmp_path / "kept/results.json"), []

    def build() -> tuple[int, str]:
        built.append((tmp_path / "code_of.py").read_text())
        if len(built) == 3:
            raise KeyboardInterrupt
        return 0, ""

    copy, lines = copy_in(tmp_path, build), dict.fromkeys(mutants, 1)
    with pytest.raises(KeyboardInterrupt):
        judge(mutants, lines, copy, kept)
    assert found_before(mutants, kept) == {}
    outcomes = [fate.outcome for fate in judge(mutants, lines, copy, kept).values()]
    # The survivor again, and the right lines.
    assert [text == CODE for text in built] == [False, False, True, False, True] and sorted(outcomes) == [
        SURVIVED,
        KILLED,
    ]
    assert [each.number for each in found_before(mutants, kept)] == [1]


def test_list_that_does_not_fit_the_sources_is_refused(tmp_path: Path) -> None:
    copy_in(tmp_path)
    stale = [mutant("return y", "z"), mutant("return x", "z"), mutant("x + x", "x + x"), mutant("x", "y", "gone.py")]
    error = refused(UsageError, places, [mutant("x + x", "x"), *stale], tmp_path)
    assert [re.findall(r"of mutant \d occurs (\d) times", error.what)] == [["0", "2", "1", "0"]]


def test_mutants_are_chosen_by_number_and_file() -> None:
    mutants = [mutant("a", "b", f"{'ab'[n % 2]}.py", n) for n in range(1, 7)]
    chosen = [each.number for each in choose(mutants, ["2-4", "b.p"])]
    assert chosen == [1, 2, 3, 4, 5]
    assert choose(mutants, []) == mutants
    with pytest.raises(UsageError, match="7: no such mutant"):
        choose(mutants, ["7"])


# Without lines that compute something.
WITHOUT = {
    *(f"native/{name}.h" for name in ("Correlate2d", "RoiPool", "SpectralMagnitude", "TwicePlus")),
    "native/python/nn/modules/__init__.py",
}


@pytest.fixture(scope="module")
def mutants() -> dict[Mutant, int]:
    return places(load_mutants())


def test_each_right_text_stands_in_the_sources_once(mutants: dict[Mutant, int]) -> None:
    assert len(mutants) >= 60
    assert len({(mutant.file, mutant.right, mutant.wrong) for mutant in mutants}) == len(mutants)
    for each in mutants:
        missing = [word for word in each.tests if word.startswith("tests/") and not (REPOSITORY / word).exists()]
        assert missing == []


@pytest.mark.parametrize("package", ["adopt", "check", "checkout", "session"])
def test_packages_of_the_builder_have_five_wrong_lines_that_ci_finds(package: str, mutants: dict[Mutant, int]) -> None:
    ours = [mutant for mutant in mutants if mutant.file.startswith(f"scripts/graft/{package}/")]
    assert len(ours) >= 5
    assert len({mutant.file for mutant in ours}) >= 5
    folders = {word.split("/")[1] for mutant in ours for word in mutant.tests if word.startswith("tests/")}
    assert folders <= {"builder", "codegen", "deliveries", "fork", "loaded", "promises"}


def test_each_source_of_an_operator_has_a_mutant(mutants: dict[Mutant, int]) -> None:
    every = [path for path in (REPOSITORY / "native").rglob("*") if path.suffix in (".cpp", ".h", ".cu", ".py")]
    others = [path.parent for path in (REPOSITORY / "native").glob("*/native_functions.yaml")]  # they have no operators
    native = [path for path in every if not any(map(path.is_relative_to, others))]
    wanted = {path.relative_to(REPOSITORY).as_posix() for path in native}
    assert wanted - {mutant.file for mutant in mutants} - WITHOUT == {"native/samples.py"}  # the arguments of tests


def test_each_formula_has_a_mutant(mutants: dict[Mutant, int]) -> None:
    path = REPOSITORY / "native/derivatives.yaml"
    tree = yaml.compose(path.read_text())
    keys = {key.start_mark.line + 1: (key.value, value.value) for entry in tree.value for key, value in entry.value}
    others = ("name", "output_differentiability")
    formulas = {n for n, (key, text) in keys.items() if key not in others and text != "non_differentiable"}
    lines = {
        number
        for mutant, line in mutants.items()
        if mutant.file == "native/derivatives.yaml"
        for number in range(line, line + mutant.right.count("\n") + 1)
    }
    assert {number: keys[number] for number in formulas - lines} == {}


def test_each_kernel_for_cuda_has_a_mutant(mutants: dict[Mutant, int]) -> None:
    for path in sorted((REPOSITORY / "native/cuda").glob("*.cu")):
        text = path.read_text()
        ours = [text.index(each.right) for each in mutants if each.file == f"native/cuda/{path.name}"]
        for kernel in re.finditer(r"__global__ void (\w+)\(.*?^}$", text, re.M | re.S):
            assert any(kernel.start() < place < kernel.end() for place in ours), kernel[1]
