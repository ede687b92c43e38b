"""``graft.load`` after an edit that changes schemas or removes operators, and ``graft.unload``."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from clipped import BY_INDUCTOR, HELD_NAMES, LOAD, PROGRAMS, QUICK, SETUP, VARIANTS, variant
from sessions import Folder, Session, agrees

# What walks all operators.
WALKS = """
core_aten_decompositions()
for name in dir(torch.ops.aten):
    packet_of_name = getattr(torch.ops.aten, name)
    for overload in packet_of_name.overloads() if hasattr(packet_of_name, "overloads") else ():
        str(getattr(packet_of_name, overload)._schema)
torch.overrides.get_overridable_functions()
{torch.overrides.resolve_name(each) for each in torch.overrides.get_testing_overrides()}
torch._C._jit_get_all_schemas()
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    inspect.getmembers(torch)
    inspect.getmembers(torch.Tensor)
[name for name in ("soft_clip", "twice", "clip_twice") if name in dir(torch) or name in torch.__all__]
"""

CALLER = """#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/calls_clip_native.h>

namespace at::native {

Tensor calls_clip(const Tensor& self) {
  static auto op = c10::Dispatcher::singleton()
                       .findSchemaOrThrow("aten::soft_clip", "")
                       .typed<Tensor(const Tensor&, const Scalar&)>();
  return op.call(self, 1);
}

} // namespace at::native
"""

LOADED = SETUP

MORE = {
    "flip": (
        "shown([torch.soft_clip(x(), 2, True), x().soft_clip(flip=True), gradient(lambda x: x.soft_clip(2, "
        "True), x())])"
    ),
    "lists": "shown(torch.twice(x())[0])",
    "thrice": (
        "shown([torch.thrice(x()), x().thrice(), torch.compile(torch.thrice, backend='aot_eager')(x().detach())])"
    ),
    "names": (
        "[hasattr(torch, 'twice'), hasattr(x(), 'twice'), hasattr(torch.ops.aten, 'twice'), "
        "torch.ops.aten.soft_clip.overloads()]"
    ),
    "walks": WALKS,
}


OTHERS = ("default", "result", "renamed")


@pytest.mark.parametrize(
    "name, programs",
    [
        ("argument", PROGRAMS),
        *((name, QUICK) for name in OTHERS),
        *(pytest.param(name, PROGRAMS, marks=pytest.mark.slow) for name in OTHERS),
    ],
)
def test_edited_session_agrees_with_fresh_process(
    session: Session, where: Path, name: str, programs: dict[str, str]
) -> None:
    setup = SETUP if programs is QUICK else SETUP + BY_INDUCTOR
    first = [session.attempt({**PROGRAMS, **MORE}[each]) for each in ("schemas", "names", "thrice")]
    session.load(variant(name))
    session.run(f"for name in {HELD_NAMES}: globals().pop(name, None)")
    session.attempt(setup)  # as a user runs a cell again
    there = agrees(session, where, variant(name), setup, {**programs, **MORE})
    assert first != [there[each] for each in ("schemas", "names", "thrice")]


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_what_is_held_has_the_new_operator_or_raises(session: Session, backend: str) -> None:
    session.run(f"held_then = compiled({backend!r}); held_then(x())")
    first = session.run("shown(torch.soft_clip(x()))")
    session.load(variant("argument"))
    now = session.run("shown(torch.soft_clip(x()))")
    assert now != first
    assert session.run("shown(held(x()))") == now
    assert session.value("torch.soft_clip is held and torch.ops.aten.soft_clip is packet")
    assert session.run("shown(packet(x()))") == now
    assert session.run("shown(model(x())[0])") == now
    assert session.run("shown([each - 1 for each in held_then(x())])") == session.run("shown(apart(x()))")
    # TorchScript finds it while it optimizes, or when it runs.
    assert "soft_clip" in session.error("scripted(x())")
    assert "graft.load" in session.error("op(x())")
    # The code of a graph of FX names the operator, and gets the new one, which has this argument's default.
    for held in ("program.module()(x().detach())", "graph(x())"):
        assert "graft.load" in session.attempt(held) or session.run(held), held


def test_handle_of_another_load_raises(session: Session, where: Path) -> None:
    entry = "- func: calls_clip(Tensor self) -> Tensor\n  dispatch:\n    CompositeExplicitAutograd: calls_clip\n"
    caller = Folder(where / "caller", {"native_functions.yaml": entry, "Caller.cpp": CALLER})
    session.load(caller.path)
    assert session.run("shown(torch.calls_clip(x()))") == session.run("shown(torch.soft_clip(x()))")
    session.load(variant("kernel"))
    assert session.run("shown(torch.calls_clip(x()))") == session.run("shown(torch.soft_clip(x()))")
    # It is built again, since it names the operator, and its own handle still has the old schema.
    session.load(variant("argument"))
    assert "aten::soft_clip" in session.error("torch.calls_clip(x())")
    session.run("graft.unload('clipped')")
    assert "aten::soft_clip" in session.error("torch.calls_clip(x())")
    session.run("graft.unload('caller')")


def test_old_graph_is_right_or_an_error_after_the_schema_changes(session: Session) -> None:
    session.load(variant("formula"))
    session.run("kept = x(); result = torch.soft_clip(kept, 2)")
    first = session.run("shown(gradient(lambda _: result, kept, retain_graph=True))")
    session.load(variant("argument"))
    found = session.attempt("shown(gradient(lambda _: result, kept))")
    assert found == first or "graft.load" in found


def test_changed_default_never_changes_old_graphs_silently(session: Session) -> None:
    programs = ("shown(program.module()(x().detach()))", "shown(graph(x()))", "shown(scripted(x()))", "shown(op(x()))")
    first = [session.attempt(code) for code in programs]
    session.said()
    session.load(variant("default"))
    is_told = "the default of limit was" in session.said()
    for code, before in zip(programs, first, strict=True):
        now = session.attempt(code)
        assert now == before or is_told or "graft.load" in now, code


def test_removed_operator_says_so(session: Session) -> None:
    session.run("function, twice_op = torch.twice, torch.ops.aten.twice.default")
    session.load(variant("renamed"))
    assert "AttributeError" in session.error("torch.twice")
    assert "the load clipped of graft.load had it, and was edited since" in session.error("torch.twice")
    assert "AttributeError" in session.error("x().twice()")
    assert "AttributeError" in session.error("torch.ops.aten.twice")
    assert "twice" in session.error("scripted(x())")
    for held in ("function(x())", "twice_op(x())"):
        assert "graft.load" in session.error(held), held
    for held in ("program.module()(x().detach())", "graph(x())"):  # their code names it
        assert "'twice'" in session.error(held) or "graft.load" in session.error(held), held
    assert session.value("hasattr(torch, 'twice') or 'twice' in dir(torch) or 'twice' in torch.__all__") is False


def test_unloaded_operators_are_gone(session: Session, where: Path) -> None:
    session.run("graft.unload('clipped')")
    assert session.value("list(graft.loaded())") == []
    assert session.value(WALKS) == []
    for name in (
        "torch.soft_clip",
        "torch.Tensor.soft_clip",
        "x().soft_clip",
        "torch.ops.aten.soft_clip",
        "torch.soft_clip_",
    ):
        assert "AttributeError" in session.error(name)
    assert "the load clipped of graft.load had it, and was unloaded since" in session.error("torch.soft_clip")
    assert "AttributeError" in session.error("torch.never_was")
    assert "graft" not in session.error("torch.never_was")
    for held in ("held(x())", "op(x())"):
        assert "graft.load" in session.error(held), held
    for held in ("program.module()(x().detach())", "graph(x())", "scripted(x())", "pickle.loads(pickled)"):
        assert "soft_clip" in session.error(held), held
    assert session.error("aot(x())")
    assert "no load has this name" in session.error("graft.unload('clipped')")


def test_unloaded_and_loaded_again_agrees(session: Session, where: Path) -> None:
    for _ in range(2):
        session.run("graft.unload('clipped')")
        session.load(variant("first"))
    session.run(SETUP)
    agrees(session, where, variant("first"), SETUP, {**QUICK, "walks": WALKS})


def test_torch_is_stock_after_unload(where: Path) -> None:
    surface = (
        "print(sorted(dir(torch)), sorted(torch.__all__), sorted(dir(torch.Tensor)),"
        " sorted(dir(torch._C._VariableFunctions)),"
        " len(torch._C._jit_get_all_schemas()), sorted(torch._C._dispatch_get_all_op_names()),"
        " len(torch.overrides.get_testing_overrides()), len(torch._decomp.core_aten_decompositions()),"
        " len(torch._decomp.decomposition_table))"
    )
    with Session(where) as session:
        session.run("import torch._decomp, torch._meta_registrations; dir(torch.ops.aten)")
        first = session.run(surface)
        session.load(variant("first"))
        assert session.run(surface) != first
        session.run("graft.unload('clipped')")
        # What Graft keeps is not an operator.
        assert re.sub(r"'_(graft\w+|thin_wheels|added_operators)', ", "", session.run(surface)) == first


def test_schemas_are_edited_in_place(where: Path, folder: Folder) -> None:
    """All in one folder, whose builds find what the one before has left."""
    with Session(where) as session:
        session.run(LOAD)
        for name in ("first", "argument", "renamed", "first"):
            folder.become(VARIANTS[name])
            session.load(folder.path)
            there = session.run("torch.ops.aten.soft_clip.default._schema, torch.soft_clip(torch.ones(2)), dir(torch)")
            session.load(variant(name))
            assert there == session.run(
                "torch.ops.aten.soft_clip.default._schema, torch.soft_clip(torch.ones(2)), dir(torch)"
            )
