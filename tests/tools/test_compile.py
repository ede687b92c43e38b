"""What is told of ninja's output."""

from __future__ import annotations

from pathlib import Path

from scripts.compile import faulty, relevant, without_repetition
from scripts.layout import Layout

LAYOUT = Layout("2.13.0", Path("/my_ops"), Path("/out"))


def failed(capability: str, *errors: str) -> list[str]:
    """As ninja prints it where a source is not compiled."""
    head = [
        f"FAILED: [code=1] objects/native/cpu/K.{capability}.o\n",
        f"g++ -MD -MF {capability} src/ATen/native/cpu/K.cpp\n",
    ]
    return head + [f"src/ATen/native/cpu/K.cpp:{error}\n" for error in errors]


def test_errors_of_a_kernel_are_told_once_for_all_capabilities() -> None:
    default = failed("DEFAULT", "3:5: error: no at::vec::DEFAULT::f", "9:1: error: expected ;")
    output = [*default, *failed("AVX2", "3:5: error: no at::vec::AVX2::f", "9:1: error: expected ;")]
    assert without_repetition(output) == default


def test_errors_of_one_capability_are_told() -> None:
    output = [*failed("DEFAULT", "3:5: error: no f"), *failed("AVX512", "3:5: error: no f", "7:2: error: no g")]
    assert without_repetition(output) == output


def test_what_names_no_place_is_told_each_time() -> None:
    output = [line for capability in ("DEFAULT", "AVX2") for line in (failed(capability)[0], "g++: out of memory\n")]
    assert without_repetition(output) == output


def test_files_to_mend_are_named_once_each() -> None:
    output = [*failed("DEFAULT", "3:5: error: no f", "4:5: warning: odd", "9:1: fatal error: no such file")]
    output += ["base/include/ATen/Tensor.h:7:1: error: no member g\n"]
    said = relevant(output, LAYOUT)
    assert faulty(said, LAYOUT) == ["/my_ops/cpu/K.cpp"]
