"""``autocast.yaml``: the registrations of its policies, and the errors that are found in it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from graft.check.base import BaseOperators
from graft.codegen.__main__ import load_operators
from graft.codegen.sources import generate_autocast, read_policies
from graft.codegen.upstream import Output
from graft.core.layout import REPOSITORY
from graft.inputs.native import load_natives
from test_check_python import FUNCTION, lines

IN_PLACE = "- func: graft_probe_(Tensor(a!) self) -> Tensor(a!)\n  variants: method\n"


def registrations(text: str, base: Path, folder: Path) -> str:
    (folder / "native_functions.yaml").write_text((REPOSITORY / "native/native_functions.yaml").read_text())
    (folder / "autocast.yaml").write_text(text)
    out = Output(folder / "generated")
    generate_autocast(
        load_operators(base, load_natives([folder]), folder / "wheel").new, read_policies(load_natives([folder])), out
    )
    return "".join(map(out.read, sorted(out.names)))


def test_policy_is_registered_for_each_device(base: Path, tmp_path: Path) -> None:
    text = registrations("fp32: [gdh]\npromote:\n- twice_plus\n- twice_plus.out\n", base, tmp_path)
    cpu, cuda = re.findall(r"^TORCH_LIBRARY_IMPL\(aten, (\w+), m\) {\n(.*?)^}", text, re.M | re.S)
    assert (cpu[0], cuda[0]) == ("AutocastCPU", "Autocast")
    assert registered(cpu[1]) == [
        ("gdh", "", "KERNEL_CPU(gdh, fp32)"),
        ("twice_plus", "", "KERNEL_CPU(twice_plus, promote)"),
        ("twice_plus", "out", "KERNEL_CPU(twice_plus, out, promote)"),
    ]
    assert registered(cuda[1])[0] == ("gdh", "", "KERNEL_CUDA(gdh, fp32)")


def registered(block: str) -> list[tuple[str, str, str]]:
    """Return the registrations for operators, by name and overload, without a kernel of the folder's own."""
    return re.findall(r'^  if \(is_free\("(\w+)", "(\w*)"\)\) {\n    (.*)\n  }$', block, re.M)


@pytest.mark.parametrize("text", ["", "# nothing\n", "fp32: [digamma]\n"])
def test_nothing_is_registered_for_others(text: str, base: Path, tmp_path: Path) -> None:
    assert registrations(text, base, tmp_path) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("fp32: [\n", "2:1: not YAML"),
        ("- graft_probe\n", "1:1: no policies; write a policy and a list of operators"),
        ("fp23: [graft_probe]\n", "1:1: autocast has no policy fp23; did you mean `fp32`?"),
        ("fp32: graft_probe\n", "1:7: fp32: not a list of operators; write a policy"),
        ("fp32: [graft_prob]\n", "1:8: no operator of the folder is named graft_prob; did you mean `graft_probe`?"),
        ("fp32: [graft_probe_]\n", "1:8: graft_probe_ mutates an argument, which autocast cannot cast; leave it out"),
        (
            "fp32: [graft_probe]\npromote: [graft_probe]\n",
            "2:11: graft_probe is already listed, in line 1; delete",
        ),
    ],
)
def test_mistake_is_found_at_its_place(text: str, expected: str, known: BaseOperators, tmp_path: Path) -> None:
    functions = FUNCTION.replace("- func", "- variants: function, method\n  func") + IN_PLACE
    kernel = "Tensor& graft_probe_(Tensor& self) { return self; }"
    kernel = f"namespace at::native {{\nTensor graft_probe(const Tensor& self) {{ return self; }}\n{kernel}\n}}\n"
    files = {"native_functions.yaml": functions, "A.cpp": kernel, "autocast.yaml": text}
    (found,) = lines(tmp_path, files, known)
    assert found.startswith(f"autocast.yaml:{expected}")


def test_file_that_is_right_has_no_mistake(known: BaseOperators, tmp_path: Path) -> None:
    assert lines(tmp_path, {"autocast.yaml": "lower_precision_fp:\n- graft_probe\n"}, known) == []
