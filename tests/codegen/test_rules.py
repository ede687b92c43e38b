"""Kernels that follow from a folder's files: batching rules of entries, and the policies in ``autocast.yaml``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from graft.codegen.__main__ import load_operators
from graft.codegen.output import Output
from graft.codegen.rules import generate_autocast, generate_batching_rules, read_policies
from graft.core.layout import REPOSITORY
from graft.inputs.native import load_natives
from helpers import write

RULE = re.compile(r'm\.impl\("([^"]+)", (?:.*&(\w+)_batching_rule|static_cast)')


def test_rule_of_each_entry(base: Path, tmp_path: Path) -> None:
    text = Path(__file__).with_name("batching_rules.yaml").read_text()
    native = write(tmp_path / "native", {"native_functions.yaml": text})
    out = Output(tmp_path / "generated")
    generate_batching_rules(load_operators(base, load_natives([native]), tmp_path / "wheel").new, out)
    texts = [out.read(name) for name in out.names if name.name.startswith("BatchRulesOf")]
    found = [(name, rule or "decomposed") for each in texts for name, rule in RULE.findall(each)]
    stated = re.findall(r"^- func: ([\w.]+)\(.*  # (.*)$", text, re.M)
    assert len(stated) == text.count("- func: ")
    assert sorted(found) == sorted((name, rule) for name, rule in stated if rule != "no rule")


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
