"""What is told of ninja's output."""

from __future__ import annotations

from pathlib import Path

from scripts.compile.ninja import faulty, first_error, without_repetition

NATIVES = (Path("/my_ops"), Path("/more"))


def failed(source: str, capability: str, *said: str) -> list[str]:
    """As ninja prints it where a source is not compiled."""
    target = f"objects/native/{source}.{capability}.o"
    command = f"g++ -MD -MF {target}.d -c src/ATen/native/{source}.cpp -o {target}\n"
    return [f"FAILED: [code=1] {target}\n", command, *(f"{line}\n" for line in said)]


def test_errors_of_a_kernel_are_told_once_for_all_capabilities() -> None:
    places = ("src/ATen/native/cpu/K.cpp:3:5", "src/ATen/native/cpu/K.cpp:9:1")
    default = failed("cpu/K", "DEFAULT", *(f"{place}: error: no DEFAULT::f" for place in places))
    assert without_repetition([*default, *failed("cpu/K", "AVX2", f"{places[0]}: error: no AVX2::f")]) == default


def test_errors_of_one_capability_are_told() -> None:
    output = failed("cpu/K", "DEFAULT", "src/ATen/native/cpu/K.cpp:3:5: error: no f")
    output += failed("cpu/K", "AVX512", *(f"src/ATen/native/cpu/K.cpp:{n}:5: error: no f" for n in (3, 7)))
    assert without_repetition(output) == output


def test_errors_of_two_sources_in_one_header_are_told() -> None:
    error = "include/c10/util/Exception.h:7:1: error: no member g"
    output = [*failed("A", "DEFAULT", error), *failed("B", "DEFAULT", error)]
    assert without_repetition(output) == output


def test_what_names_no_place_is_told_each_time() -> None:
    output = [*failed("cpu/K", "DEFAULT", "K.cpp:3:5: error: no f")]
    for capability in ("AVX2", "AVX512"):
        output += failed("cpu/K", capability, "K.cpp:3:5: error: no f", "/tmp/cc.s:12: Error: no such instruction")
    assert without_repetition(output) == output


def test_files_to_fix_are_named_once_each() -> None:
    blamed = """\
/my_ops/derivatives.yaml:4: a formula of f is not valid C++; the compiler says:
/my_ops/cpu/K.cpp:3:5: error: no f
/my_ops/cpu/K.cpp:9:1: fatal error: no such file
/more/cuda/K.cu:12: error #20013-D: not on the device
/my_ops/B.h:1:2: warning: #warning error: none
base/include/ATen/Tensor.h:7:1: error: no member g
"""
    assert faulty(blamed, NATIVES) == ["/my_ops/derivatives.yaml", "/my_ops/cpu/K.cpp", "/more/cuda/K.cu"]


def test_first_error_is_told_again_where_it_is_out_of_sight() -> None:
    error = "/my_ops/K.cpp:3:5: error: no match for 'operator*'"
    blamed = f"/my_ops/K.cpp: In function 'f':\n{error}\n"
    assert first_error(blamed) == ""
    assert first_error(blamed + "    3 | note: a candidate\n" * 50) == error
