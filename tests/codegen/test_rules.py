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

UNARY = "(Tensor self) -> Tensor"
EXPLICIT = "  dispatch:\n    CompositeExplicitAutograd: kernel\n"

NON_FUNCTIONAL = EXPLICIT.replace("Autograd", "AutogradNonFunctional")
CPU = "  dispatch:\n    CPU: kernel\n"
LISTS = "(Tensor[] tensors, Tensor?[] parts) -> (Tensor, Tensor[])"

# Schema, the rest of the entry, and the rule: "" is the decomposition of a composite operator.
ENTRIES: dict[str, tuple[str, str, str | None]] = {
    "graft_unary": (UNARY, EXPLICIT, "explicit"),
    "graft_meta": (UNARY, EXPLICIT + "    Meta: meta\n", "explicit"),
    "graft_reduction": (UNARY, EXPLICIT + "  tags: reduction\n", "explicit"),
    "graft_overload.one": (UNARY, EXPLICIT + "  autogen: graft_overload.one_out\n", "explicit"),
    "graft_lists": ("(Tensor[] tensors, Tensor? weight=None) -> (Tensor, Tensor[])", EXPLICIT, "explicit"),
    "graft_number": ("(Tensor self) -> int", EXPLICIT, "explicit"),
    "graft_pointwise": (UNARY, EXPLICIT + "  tags: pointwise\n", "pointwise"),
    "graft_composite": (UNARY, "", ""),
    # A kernel of one backend, or one for all backends.
    "graft_cpu": (UNARY, CPU, None),
    "graft_cpu_too": (UNARY, EXPLICIT + "    CPU: kernel_cpu\n", None),
    "graft_sparse_too": (UNARY, EXPLICIT + "    SparseCPU: kernel_sparse\n", None),
    "graft_functional": (UNARY, NON_FUNCTIONAL, None),
    # Operators that vmap cannot show.
    "graft_seeded": (UNARY, EXPLICIT + "  tags: nondeterministic_seeded\n", None),
    "graft_values": (UNARY, EXPLICIT + "  tags: data_dependent_output\n", None),
    "graft_shape": (UNARY, EXPLICIT + "  tags: dynamic_output_shape\n", None),
    "graft_writes": ("(Tensor self, Tensor(a!) total) -> Tensor", EXPLICIT, "writing"),
    "graft_no_tensor": ("(int size) -> Tensor", EXPLICIT, None),
    # PyTorch's loop refuses lists.
    "graft_lists_cpu": (LISTS, CPU, "looping"),
    "graft_lists_cpu_too": (LISTS, EXPLICIT + "    CPU: kernel_cpu\n", "looping"),
    "graft_lists_seeded": (LISTS, EXPLICIT + "  tags: nondeterministic_seeded\n", "looping"),
    "graft_lists_pointwise": ("(Tensor[] tensors) -> Tensor", CPU + "  tags: pointwise\n", "looping"),
    "graft_pieces": ("(Tensor self) -> Tensor[]", CPU, "looping"),
    "graft_lists_": ("(Tensor(a!) self, Tensor[] tensors) -> Tensor(a!)", CPU, "looping"),
    "graft_lists_composite": (LISTS, "", ""),
    "graft_lists_number": ("(Tensor[] tensors) -> (Tensor, int)", CPU, None),
    "graft_lists_none": ("(int size) -> Tensor[]", CPU, None),
    "graft_views": ("(Tensor(a -> *) self) -> Tensor(a)[]", CPU, None),
    "graft_views_copy": ("(Tensor self) -> Tensor[]", NON_FUNCTIONAL + "  tags: view_copy\n", "looping"),
    "graft_writes_lists": ("(Tensor[] tensors, Tensor(a!)[] outs) -> ()", CPU, "writing"),
    "_foreach_graft_": ("(Tensor(a!)[] self) -> ()", "  device_check: NoCheck\n" + EXPLICIT, None),
}

RULE = re.compile(r'm\.impl\("([^"]+)", (?:.*&(\w+)_batching_rule|static_cast)')


def test_rule_of_each_entry(base: Path, tmp_path: Path) -> None:
    text = "".join(f"\n- func: {name}{schema}\n{rest}" for name, (schema, rest, _) in ENTRIES.items())
    native = write(tmp_path / "native", {"native_functions.yaml": text})
    out = Output(tmp_path / "generated")
    generate_batching_rules(load_operators(base, load_natives([native]), tmp_path / "wheel").new, out)
    texts = [out.read(name) for name in out.names if name.name.startswith("BatchRulesOf")]
    found = [pair for text in texts for pair in RULE.findall(text)]
    expected = [(name, rule) for name, (_, _, rule) in ENTRIES.items() if rule is not None]
    assert sorted(found) == sorted(expected)


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
