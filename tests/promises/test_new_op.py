"""`make new-op` with every KIND and all VARIANTS: it builds unchanged, and passes its tests once its TODOs are
completed.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

import pytest
from graft.core.layout import REPOSITORY
from graft.new.skeleton import KINDS
from place import Outcome, Place

VARIANTS = {"": "only", "inplace": "in_place", "out": "outs", "inplace,out": "both"}
OPERATORS = {
    f"{kind}_{name}": (kind, variants, f"{kind}_{name}(Tensor self, Tensor other, *, float alpha=1.0) -> Tensor")
    for kind in KINDS
    for variants, name in VARIANTS.items()
    if kind != "kernel" or "inplace" not in variants
}

# The text that replaces a TODO, and in which files.
_REFUSES = r"TORCH_CHECK_NOT_IMPLEMENTED\(.*?\);\n"
FILLED = {
    r".*\.cpp": [
        (
            rf"(_backward_\w+\([^{{]*\{{\n)  // TODO: (?:compute|return)[^\n]*\n *{_REFUSES}",
            r"\1  return std::make_tuple(grad_output.clone(), grad_output.mul(alpha));\n",
        ),
        (rf"// TODO: (?:compute|return)[^\n]*\n *{_REFUSES}", "return self.add(other, alpha);\n"),
        (rf"// TODO: delete this check.*?\n *{_REFUSES}", ""),
        (r"-> scalar_t \{ return self; ", "-> scalar_t { return self + static_cast<scalar_t>(alpha) * other; "),
        (r"\breturn self; ", "return self + vec::Vectorized<scalar_t>(static_cast<scalar_t>(alpha)) * other; "),
    ],
    r"derivatives\.yaml": [
        # Not those of the backward, which has none.
        (r"  self: not_implemented\(\"(?!_).*?\)", "  self: grad"),
        (r"  other: not_implemented\(\"(?!_).*?\)", "  other: grad * alpha"),
    ],
    r"decompositions\.py": [(r'raise NotImplementedError\(".*?"\)', "return self + alpha * other")],
    r"test_.*\.py": [(r"raise NotImplementedError\(.*?\)", "return self + alpha * other")],
}


@dataclass(frozen=True)
class Results:
    """The output of `make test`, and why each test failed: empty for one that passed."""

    outcome: Outcome
    failures: dict[str, str]


def run_own_tests(place: Place) -> Results:
    """Build the folder, and run its tests."""
    results = place.home / "results"
    shutil.rmtree(results, ignore_errors=True)
    given = f'ARGS="--parts operators --junit {results} -- --tb=short"'
    outcome = place.run(["bash", "-c", f"make test NATIVE=~/my_ops OUT=~/my_wheel {given}"])
    assert results.is_dir(), outcome.said
    (file,) = results.iterdir()
    failures = {
        f"{case.get('classname', '').rpartition('.')[2]}.{case.get('name')}": "".join(
            f"{failure.get('message')}\n{failure.text}" for failure in case.iter("failure")
        )
        for case in ElementTree.parse(file).iter("testcase")
    }
    return Results(outcome, failures)


@pytest.fixture(scope="module")
def stages(base: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Results, Results]]:
    """All operators in one folder: as generated, and completed."""
    folder = tmp_path_factory.mktemp("new")
    place = Place(folder, base)
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(REPOSITORY / "tests", place.repository / "tests", ignore=ignored, dirs_exist_ok=True)
    shutil.copyfile(REPOSITORY / "pyproject.toml", place.repository / "pyproject.toml")
    for kind, variants, schema in OPERATORS.values():
        made = place.run(
            ["bash", "-c", f'make new-op NATIVE=~/my_ops KIND={kind} VARIANTS={variants} SCHEMA="{schema}"']
        )
        assert made.code == 0, made.said
    as_they_are = run_own_tests(place)
    for path in (place.home / "my_ops").rglob("*.*"):
        text = path.read_text(encoding="utf-8")
        for name, replacements in FILLED.items():
            if re.fullmatch(name, path.name):
                for old, new in replacements:
                    text = re.sub(old, new, text, flags=re.S)
        path.write_text(text, encoding="utf-8")
    yield as_they_are, run_own_tests(place)
    shutil.rmtree(folder)


@pytest.mark.slow
def test_operators_build_as_they_are_and_each_test_fails_at_a_todo(stages: tuple[Results, Results]) -> None:
    as_they_are, _ = stages
    assert ".whl\n" in as_they_are.outcome.said
    assert {name.partition(".")[0] for name in as_they_are.failures} == {f"test_{name}" for name in OPERATORS}
    other = {name: why for name, why in as_they_are.failures.items() if "TODO" not in why}
    assert not other


@pytest.mark.slow
def test_operators_pass_once_their_todos_are_filled(stages: tuple[Results, Results]) -> None:
    as_they_are, filled = stages
    assert filled.outcome.code == 0, filled.outcome.said
    assert filled.failures.keys() == as_they_are.failures.keys()
    assert not any(filled.failures.values())
    assert "all tests passed" in filled.outcome.said or "all selected tests passed" in filled.outcome.said
