"""Which batching rules follow from an operator's entry."""

from __future__ import annotations

import re
from pathlib import Path

from graft.codegen.__main__ import load_operators
from graft.codegen.sources import generate_batching_rules
from graft.codegen.upstream import Output
from graft.inputs.native import load_natives
from helpers import write

UNARY = "(Tensor self) -> Tensor"
EXPLICIT = "  dispatch:\n    CompositeExplicitAutograd: kernel\n"

# Schema, the rest of the entry, and the file of the rule.
ENTRIES: dict[str, tuple[str, str, str | None]] = {
    "graft_unary": (UNARY, EXPLICIT, "Explicit"),
    "graft_meta": (UNARY, EXPLICIT + "    Meta: meta\n", "Explicit"),
    "graft_reduction": (UNARY, EXPLICIT + "  tags: reduction\n", "Explicit"),
    "graft_overload.one": (UNARY, EXPLICIT + "  autogen: graft_overload.one_out\n", "Explicit"),
    "graft_lists": ("(Tensor[] tensors, Tensor? weight=None) -> (Tensor, Tensor[])", EXPLICIT, "Explicit"),
    "graft_number": ("(Tensor self) -> int", EXPLICIT, "Explicit"),
    "graft_pointwise": (UNARY, EXPLICIT + "  tags: pointwise\n", "Pointwise"),
    "graft_composite": (UNARY, "", "Composites"),
    # A kernel of one backend, or one for all backends.
    "graft_cpu": (UNARY, "  dispatch:\n    CPU: kernel\n", None),
    "graft_cpu_too": (UNARY, EXPLICIT + "    CPU: kernel_cpu\n", None),
    "graft_sparse_too": (UNARY, EXPLICIT + "    SparseCPU: kernel_sparse\n", None),
    "graft_functional": (UNARY, EXPLICIT.replace("Autograd", "AutogradNonFunctional"), None),
    # Operators that vmap cannot show.
    "graft_seeded": (UNARY, EXPLICIT + "  tags: nondeterministic_seeded\n", None),
    "graft_values": (UNARY, EXPLICIT + "  tags: data_dependent_output\n", None),
    "graft_shape": (UNARY, EXPLICIT + "  tags: dynamic_output_shape\n", None),
    "graft_writes": ("(Tensor self, Tensor(a!) total) -> Tensor", EXPLICIT, "Writing"),
    "graft_no_tensor": ("(int size) -> Tensor", EXPLICIT, None),
}


def test_rule_of_each_entry(base: Path, tmp_path: Path) -> None:
    text = "".join(f"\n- func: {name}{schema}\n{rest}" for name, (schema, rest, _) in ENTRIES.items())
    native = write(tmp_path / "native", {"native_functions.yaml": text})
    out = Output(tmp_path / "generated")
    generate_batching_rules(load_operators(base, load_natives([native]), tmp_path / "wheel").new, out)
    found = {
        name: file.stem.removeprefix("BatchRulesOfAdded")
        for file in (out.folder / name for name in out.names if name.suffix == ".cpp")
        for name in re.findall(r'm\.impl\("([^"]+)"', file.read_text(encoding="utf-8"))
    }
    assert found == {name: file for name, (_, _, file) in ENTRIES.items() if file}
