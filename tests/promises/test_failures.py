"""Builds that fail: their exit codes, file and line, and that the previous wheel is unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from helpers import program
from place import Place

KERNEL, FUNCTIONS, FORMULAS = "SoftClip.cpp", "native_functions.yaml", "derivatives.yaml"
RETURN = "return self.div(limit).tanh().mul(limit);"


@pytest.fixture
def kernel(plain: Place) -> Iterator[str]:
    """The text of the kernel. Afterwards the wheel must be unchanged, with content and time, and match the folder."""
    before = plain.state()
    yield (plain.home / "my_ops" / KERNEL).read_text(encoding="utf-8")
    assert plain.state() == before
    again = plain.build()
    assert again.code == 0 and again.said.startswith(f"nothing changed: {plain.wheel}\n")


def test_wrong_formula_is_compiled_once(plain: Place, kernel: str) -> None:
    """The formula is in a generated source, which takes seconds to compile."""
    launcher = program(plain.home / "log", f'echo "$*" >>{plain.home}/calls\nexec "$@"')
    formula = (plain.home / "my_ops" / FORMULAS).read_text(encoding="utf-8")
    with plain.edited({FORMULAS: formula.replace(".pow(2)", '.pow("two")')}):
        done = plain.build("--launcher", launcher)
    *above, before = formula.partition(".pow(2)")[0].split("\n")
    place = f"{FORMULAS}:{len(above) + 1}:{len(before) + 2}"
    assert f"{place}: error: a formula of soft_clip is not valid C++: " in done.said
    assert "two" in done.said
    calls = (plain.home / "calls").read_text(encoding="utf-8").splitlines()
    assert len([call for call in calls if call.endswith("library.o.part")]) == 1


def test_names_that_nothing_defines(plain: Place, kernel: str) -> None:
    """A function, and a variable that is in no header, but hidden in libtorch_cpu: Metal's registry."""
    calls = kernel.replace(RETURN, f"check_limit(limit); TORCH_CHECK(!at::metal::g_metal_impl_registry); {RETURN}")
    calls = calls.replace("Tensor soft_clip(", "void check_limit(const Scalar&);\n\nTensor soft_clip(")
    declared = "namespace at::metal { extern void* g_metal_impl_registry; }\n\n"
    with plain.edited({KERNEL: calls.replace("namespace at::native {", f"{declared}namespace at::native {{", 1)}):
        done = plain.build()
    assert done.code == 1, done.said
    assert "Traceback" not in done.said and "snapshot" not in done.said
    said = done.said.replace(f"{plain.home}/my_ops/", "")
    for missing in (r"at::native::check_limit\(c10::Scalar const&\)", "at::metal::g_metal_impl_registry"):
        assert re.search(rf"^(?:error: )?{KERNEL}(:\d+)?: calls {missing}, which is not defined", said, re.M)
    assert "hidden variables of libtorch_cpu.so" in said


def test_warnings_stop_no_build(plain: Place, kernel: str) -> None:
    """Warnings of the compiler and of the check."""
    warned = kernel.replace("Tensor soft_clip(", "#warning look here\nTensor soft_clip(")
    with plain.edited({KERNEL: warned, "helper.cc": ""}):
        done = plain.build("--out", plain.home / "warned")
    assert done.code == 0, done.said
    assert f"{plain.home}/my_ops/helper.cc:1: warning: PyTorch's build does not compile .cc files" in done.said
    assert len(list((plain.home / "warned").glob("*.whl"))) == 1


def test_files_are_listed_on_request_also_if_one_has_an_error(plain: Place) -> None:
    files = [plain.home / "my_ops" / name for name in sorted((FORMULAS, FUNCTIONS, KERNEL, "samples.py"))]
    with plain.edited({FUNCTIONS: "- func: soft_clip(Tensor self) -> Tensro\n"}):
        done = plain.run(plain.command("check", "--list"))
    assert done.code == 1
    listed = [line for line in done.said.splitlines() if line in map(str, files)]
    assert listed == [str(file) for file in files]
