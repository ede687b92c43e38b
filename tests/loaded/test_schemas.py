"""``graft.load`` after an edit that changes schemas or removes operators, and ``graft.unload``."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from clipped import PROGRAMS, SETUP, TEXTS
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

# What `HELD` sets.
HELD_NAMES = (
    "held",
    "scripted",
    "method",
    "op",
    "packet",
    "aot",
    "inductor",
    "decomposed",
    "graph",
    "program",
    "pickled",
    "model",
)

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

NATIVE = ("clipped", TEXTS)
LOADED = SETUP


def add_argument(folder: Folder) -> None:
    for name in ("native_functions.yaml", "derivatives.yaml"):
        folder.edit(name, "Scalar limit=1", "Scalar limit=1, bool flip=False")
    folder.edit(
        "native_functions.yaml",
        "clip_twice(Tensor self, Scalar limit=1, bool flip=False)",
        "clip_twice(Tensor self, Scalar limit=1)",
    )
    folder.edit("SoftClip.cpp", "const Scalar& limit", "const Scalar& limit, bool flip")
    folder.edit("SoftClipKernel.cpp", "const Scalar& limit", "const Scalar& limit, bool flip")
    folder.edit("SoftClipKernel.cpp", "mul(limit)", "mul(limit).mul(flip ? -1 : 1)")
    path = folder.path / "derivatives.yaml"
    path.write_text(re.sub(r"self: (grad .*)", r'self: "(flip ? -1 : 1) * \1"', path.read_text(), count=1))


def change_default(folder: Folder) -> None:
    for name in ("native_functions.yaml", "derivatives.yaml"):
        folder.edit(name, "Scalar limit=1", "Scalar limit=5")


def change_result(folder: Folder) -> None:
    folder.edit("native_functions.yaml", "twice(Tensor self) -> Tensor", "twice(Tensor self) -> (Tensor, Tensor)")
    folder.edit(
        "derivatives.yaml",
        "twice(Tensor self) -> Tensor\n  self: 2 * grad\n  result: auto_linear",
        "twice(Tensor self) -> (Tensor, Tensor)\n  output_differentiability: [True, False]\n  self: 2 * grad",
    )
    folder.edit("Twice.cpp", "Tensor twice_cpu", "std::tuple<Tensor, Tensor> twice_cpu")
    folder.edit("Twice.cpp", "return self.mul(2)", "return {self.mul(2), self.mul(3)}")
    folder.edit(
        "ClipTwice.cpp", "at::twice(at::soft_clip(self, limit))", "std::get<0>(at::twice(at::soft_clip(self, limit)))"
    )
    folder.edit(
        "python/_meta_registrations.py",
        "return torch.empty_like(self)",
        "return (torch.empty_like(self), torch.empty_like(self))",
    )


def remove_method(folder: Folder) -> None:
    folder.edit(
        "native_functions.yaml",
        "twice(Tensor self) -> Tensor\n  variants: function, method",
        "twice(Tensor self) -> Tensor\n  variants: function",
    )


def remove_operator(folder: Folder) -> None:
    entries = "- func: twice(Tensor self) -> Tensor\n  variants: function, method\n  dispatch:\n    CPU: twice_cpu\n\n"
    folder.edit("native_functions.yaml", entries, "")
    folder.edit("derivatives.yaml", FORMULA_OF_TWICE, "")
    folder.remove("Twice.cpp")
    folder.remove("python/_meta_registrations.py")
    folder.edit("ClipTwice.cpp", "#include <ATen/ops/twice.h>\n", "")
    folder.edit("ClipTwice.cpp", "at::twice(at::soft_clip(self, limit))", "at::soft_clip(self, limit)")


FORMULA_OF_TWICE = "- name: twice(Tensor self) -> Tensor\n  self: 2 * grad\n  result: auto_linear\n"

NEW = """
- func: thrice(Tensor self) -> Tensor
  variants: function, method
  dispatch:
    CompositeExplicitAutograd: thrice
"""

THRICE = """#include <ATen/core/Tensor.h>
#include <ATen/ops/thrice_native.h>

namespace at::native {

Tensor thrice(const Tensor& self) {
  return self.mul(3);
}

} // namespace at::native
"""


def add_operator(folder: Folder) -> None:
    folder.add("native_functions.yaml", TEXTS["native_functions.yaml"] + NEW)
    folder.add("Thrice.cpp", THRICE)


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


@pytest.mark.parametrize(
    "edit", [add_argument, change_default, change_result, remove_method, remove_operator, add_operator]
)
def test_edited_session_agrees_with_fresh_process(
    session: Session, folder: Folder, where: Path, edit: Callable[[Folder], None]
) -> None:
    programs = {**PROGRAMS, **MORE}
    first = (
        session.attempt(programs["schemas"]),
        session.attempt(programs["names"]),
        session.attempt(programs["thrice"]),
    )
    edit(folder)
    session.load(folder.path)
    session.run(f"for name in {HELD_NAMES}: globals().pop(name, None)")
    session.attempt(SETUP)  # as a user runs a cell again
    there = agrees(session, where, [folder.path], SETUP, programs)
    assert first != (there["schemas"], there["names"], there["thrice"])


def test_what_is_held_has_the_new_operator_or_raises(session: Session, folder: Folder) -> None:
    add_argument(folder)
    folder.edit("SoftClipKernel.cpp", "mul(limit)", "mul(limit).mul(3)")
    session.load(folder.path)
    now = session.run("shown(torch.soft_clip(x()))")
    assert session.run("shown(held(x()))") == now
    assert session.value("torch.soft_clip is held and torch.ops.aten.soft_clip is packet")
    assert session.run("shown(packet(x()))") == now
    assert session.run("shown(model(x())[0])") == now
    assert session.run("shown([each - 1 for each in aot(x())])") == session.run("shown(apart(x()))")
    assert session.run("shown([each - 1 for each in inductor(x())])") == session.run("shown(apart(x()))")
    # TorchScript finds it while it optimizes, or when it runs.
    assert "soft_clip" in session.error("scripted(x())")
    assert "graft.load" in session.error("op(x())")
    # The code of a graph of FX names the operator, and gets the new one, which has this argument's default.
    for held in ("program.module()(x().detach())", "graph(x())"):
        assert "graft.load" in session.attempt(held) or session.run(held), held


def test_handle_of_another_load_raises(session: Session, folder: Folder, where: Path) -> None:
    entry = "- func: calls_clip(Tensor self) -> Tensor\n  dispatch:\n    CompositeExplicitAutograd: calls_clip\n"
    caller = Folder(where / "caller", {"native_functions.yaml": entry, "Caller.cpp": CALLER})
    session.load(caller.path)
    assert session.run("shown(torch.calls_clip(x()))") == session.run("shown(torch.soft_clip(x()))")
    folder.edit("SoftClipKernel.cpp", "mul(limit)", "mul(limit).mul(3)")
    session.load(folder.path)
    assert session.run("shown(torch.calls_clip(x()))") == session.run("shown(torch.soft_clip(x()))")
    add_argument(folder)
    session.load(folder.path)
    assert "graft.load" in session.error("torch.calls_clip(x())")
    session.run("graft.unload('clipped')")
    assert "graft.load" in session.error("torch.calls_clip(x())")
    session.run("graft.unload('caller')")


def test_old_graph_is_right_or_an_error_after_the_schema_changes(session: Session, folder: Folder) -> None:
    folder.edit("derivatives.yaml", "grad * (1 -", "grad * 1 * (1 -")
    session.load(folder.path)
    session.run("kept = x(); result = torch.soft_clip(kept, 2)")
    first = session.run("shown(gradient(lambda _: result, kept, retain_graph=True))")
    add_argument(folder)
    session.load(folder.path)
    found = session.attempt("shown(gradient(lambda _: result, kept))")
    assert found == first or "graft.load" in found


def test_changed_default_never_changes_old_graphs_silently(session: Session, folder: Folder) -> None:
    programs = ("shown(program.module()(x().detach()))", "shown(graph(x()))", "shown(scripted(x()))", "shown(op(x()))")
    first = [session.attempt(code) for code in programs]
    change_default(folder)
    session.said()
    session.load(folder.path)
    is_told = "the default of limit was" in session.said()
    for code, before in zip(programs, first, strict=True):
        now = session.attempt(code)
        assert now == before or is_told or "graft.load" in now, code


def test_removed_operator_says_so(session: Session, folder: Folder) -> None:
    session.run("function, twice_op = torch.twice, torch.ops.aten.twice.default")
    remove_operator(folder)
    session.load(folder.path)
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


def test_unloaded_operators_are_gone(session: Session, folder: Folder, where: Path) -> None:
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


def test_unloaded_and_loaded_again_agrees(session: Session, folder: Folder, where: Path) -> None:
    for _ in range(2):
        session.run("graft.unload('clipped')")
        session.load(folder.path)
    session.run(SETUP)
    agrees(session, where, [folder.path], SETUP, {**PROGRAMS, "walks": WALKS})


def test_torch_is_stock_after_unload(where: Path, folder: Folder) -> None:
    folder.restore()
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
        session.load(folder.path)
        assert session.run(surface) != first
        session.run("graft.unload('clipped')")
        # What Graft keeps is not an operator.
        assert re.sub(r"'_(graft\w+|thin_wheels|added_operators)', ", "", session.run(surface)) == first


def test_library_is_opened_again_after_its_definitions_were_taken_back(session: Session, folder: Folder) -> None:
    first = session.run("shown(apart(x()))")
    for _ in range(3):
        add_argument(folder)
        session.load(folder.path)
        assert session.value("shown(torch.soft_clip(x(), 1, True))[2:]") == [
            -each for each in session.value("shown(torch.soft_clip(x()))")[2:]
        ]
        folder.restore()
        session.load(folder.path)
        assert session.run("shown(apart(x()))") == first
