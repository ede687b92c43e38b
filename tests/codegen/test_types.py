"""Each type of a schema in each form: check accepts those, and only those, whose generated code compiles."""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterable
from pathlib import Path

import pytest
from corpus import compiled, headers_of
from graft.check.__main__ import check
from graft.check.base import BaseOperators
from graft.codegen.__main__ import generate, generate_sources
from graft.codegen.headers import WheelOutput
from graft.codegen.operators import Operators
from graft.codegen.output import Output
from graft.core.layout import PACKAGE
from graft.inputs.entries import read_entries
from graft.inputs.native import load_natives
from helpers import write
from snippets import REPOSITORY
from torchgen import local
from torchgen.api import native
from torchgen.model import BaseTy, FunctionSchema

FORMS = ("{}", "{}?", "{}[]", "{}[2]", "{}[]?", "{}[2]?", "{}?[]")
TYPES = [form.format(kind.name) for kind in BaseTy for form in FORMS]
INCLUDED = ("torch/include", "torch/include/torch/csrc/api/include")


def is_schema(text: str) -> bool:
    try:
        return str(FunctionSchema.parse(text)) == text
    except Exception:  # torchgen raises arbitrary errors
        return False


def operators() -> dict[str, str]:
    """The schema of an operator for each form of an argument, and for each of a result."""
    found = {f"ty_argument_{number}": f"(Tensor self, {kind} x) -> Tensor" for number, kind in enumerate(TYPES)}
    found |= {f"ty_result_{number}": f"(Tensor self) -> {kind}" for number, kind in enumerate(TYPES)}
    return {name: f"{name}{schema}" for name, schema in found.items() if is_schema(f"{name}{schema}")}


SCHEMAS = operators()


def write_folder(folder: Path, names: Iterable[str]) -> Path:
    kernel = "  variants: function, method\n  dispatch:\n    CompositeExplicitAutograd: {}\n"
    seeded = "  tags: nondeterministic_seeded\n"  # torchgen wants it where there is a generator
    entries = [
        f"- func: {SCHEMAS[name]}\n{kernel.format(name)}{seeded if 'Generator' in SCHEMAS[name] else ''}"
        for name in names
    ]
    return write(folder, {"native_functions.yaml": "".join(entries)})


@pytest.fixture(scope="module")
def refused(known: BaseOperators, tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The operators that check refuses, other than for the kernels that are missing."""
    folder = write_folder(tmp_path_factory.mktemp("all") / "native", SCHEMAS)
    lines = (folder / "native_functions.yaml").read_text().splitlines()
    starts = [number for number, line in enumerate(lines, 1) if line.startswith("- func: ")]
    found = check(load_natives([folder]), known).errors
    wrong = [error.line for error in found if error.code != "kernel-missing"]
    return {list(SCHEMAS)[sum(start <= line for start in starts) - 1] for line in wrong}


def errors_of(folder: Path, base: Path, out: Path) -> str:
    """Generate, and return the compiler's errors."""
    generate(base, load_natives([folder]), out)
    said = ""
    for source in sorted([*out.glob("units/*/library.cpp"), *out.glob("units/*/bindings.cpp")]):
        places = [*headers_of(source.parent), out / "include", out / "wheel/torch/include"]
        places += [PACKAGE / "compile/templates", *(base / name for name in INCLUDED)]
        said += compiled(source, [*places, Path(sysconfig.get_path("include"))])
    return said


def test_what_check_accepts_compiles(refused: set[str], base: Path, tmp_path: Path) -> None:
    accepted = [name for name in SCHEMAS if name not in refused]
    types = {match[1] for name in accepted if (match := re.search(r", (\S+) x\)", SCHEMAS[name]))}
    assert {"Tensor[]", "float[]", "int[2]?", "str?", "Tensor?[]"} <= types
    assert errors_of(write_folder(tmp_path / "native", accepted), base, tmp_path / "out") == ""


@pytest.mark.slow
def test_what_check_refuses_does_not(refused: set[str], base: Path, tmp_path: Path) -> None:
    """torchgen refuses it, or the compiler what it generates."""
    generated = []
    for name in sorted(refused):
        folder = write_folder(tmp_path / name, [name])
        try:
            alone = Operators(base, read_entries(folder / "native_functions.yaml"))
            generate_sources(alone, {}, Output(tmp_path / "out"), WheelOutput(tmp_path / "wheel", base), "no")
            generated.append(name)
        except Exception:  # torchgen raises arbitrary errors
            continue
    said = errors_of(write_folder(tmp_path / "all", generated), base, tmp_path / "compiled")
    assert [SCHEMAS[name] for name in generated if not re.search(rf"{name}\b", said)] == []


def taken(kind: str, *, symint: bool) -> str:
    """Return the C++ type that a kernel takes for a type of a schema."""
    with local.parametrize(use_const_ref_for_mutable_tensors=False, use_ilistref_for_tensor_lists=False):
        (argument,) = native.arguments(FunctionSchema.parse(f"f({kind} x) -> ()"), symint=symint)
    return argument.type


def test_page_lists_the_types_that_kernels_take() -> None:
    page = (REPOSITORY / "native/guides/start.md").read_text(encoding="utf-8")
    table = page.split("<!-- types -->\n")[1].split("\n\n")[0]
    rows = [[re.findall("`([^`]+)`", cell) for cell in row.split("|")[1:-1]] for row in table.splitlines()[2:]]
    assert len(rows) > 20
    for kinds, (plain, *of_symbols) in rows:
        for kind in kinds:
            assert taken(kind, symint=False) == plain, kind
            assert taken(kind, symint=True) == (of_symbols[-1] if of_symbols else plain), kind
