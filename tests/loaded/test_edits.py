"""``graft.load`` again after an edit that keeps schemas: the session is as a process that loads the last version."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from clipped import BY_INDUCTOR, LOAD, PROGRAMS, QUICK, SETUP, TOOLS, variant
from sessions import Session, agrees, printed_at_first

# What the programs' own results tell of.
EAGER = ("eager", "method", "vmap", "aot_eager of before", "export of before", "TorchScript")
DERIVED = ("backward", "double backward", "func", "aot_eager", "aot_eager of before", "stub", "TorchScript")

# What each edit changes.
CHANGED = {
    "kernel": (*EAGER, "out", "stub", "index", "others compiled", "decomposed of before"),
    "header": EAGER,
    "formula": DERIVED,
    "no formula": DERIVED,
    "composite": ("eager", "method", "vmap", "backward", "aot_eager of before", "make_fx", "export"),
    "python": (*EAGER, "meta", "fake", "make_fx with decompositions", "export", "help", "autocast"),
    "no python": ("meta", "make_fx with decompositions", "help", "autocast"),
}


@pytest.fixture(scope="module")
def only(where: Path) -> Iterator[Session]:
    """The session of all tests."""
    with Session(where) as session:
        session.load(variant("first"))
        session.run(LOAD + SETUP)
        yield session
        assert session.ended() == 0


def before(where: Path, programs: dict[str, str]) -> dict[str, str]:
    """Return what programs print with the first version."""
    return printed_at_first(where, variant("first"), SETUP, tuple(programs.items()))


# Inductor takes as long as all others.
BY_NIGHT = [pytest.param(name, PROGRAMS, marks=pytest.mark.slow) for name in CHANGED if name != "kernel"]


@pytest.mark.parametrize(
    "name, programs",
    [("kernel", PROGRAMS), *((name, QUICK) for name in CHANGED if name != "kernel"), *BY_NIGHT],
)
def test_edited_session_agrees_with_fresh_process(
    session: Session, where: Path, name: str, programs: dict[str, str]
) -> None:
    setup = SETUP if programs is QUICK else SETUP + BY_INDUCTOR
    session.run(setup.removeprefix(SETUP))
    session.load(variant(name))
    # make_fx has put the operators into the graph that a composite kernel called then.
    session.run("graph = make_fx(of_all)(x())")
    there = agrees(session, where, variant(name), setup, programs)
    first = before(where, QUICK)
    assert [each for each in CHANGED[name] if there[each] == first[each]] == []


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
def test_structured_meta_function_changes_the_size(session: Session, where: Path, backend: str) -> None:
    held = f"held_then = compiled({backend!r}); held_then(x())"
    session.run(held)
    session.load(variant("size"))
    programs = {name: PROGRAMS[name] for name in ("out", "meta", "fake")} | {"then": "shown(held_then(x().detach()))"}
    there = agrees(session, where, variant("size"), TOOLS + held, programs)
    first = before(where, QUICK)
    assert [name for name in ("out", "meta", "fake") if there[name] == first[name]] == []


def test_first_version_again_agrees(session: Session, where: Path) -> None:
    for name in ("kernel", "formula", "python", "first"):
        session.load(variant(name))
    session.run("graph = make_fx(of_all)(x())")  # as above
    assert {name: session.attempt(code) for name, code in QUICK.items()} == before(where, QUICK)


@pytest.mark.parametrize("name", ["kernel", "formula", "composite", "python"])
def test_objects_stay_the_same(session: Session, name: str) -> None:
    session.run(
        "from torch import soft_clip, twice\n"
        "def objects():\n"
        "    aten = torch.ops.aten.soft_clip\n"
        "    tensor = torch.Tensor\n"
        "    return torch.soft_clip, torch.twice, tensor.soft_clip, tensor.twice, aten, aten.default, aten.out\n"
        "kept = objects()"
    )
    session.load(variant(name))
    assert session.value("[one is another for one, another in zip(kept, objects())]") == [True] * 7
    assert session.value("torch.soft_clip is soft_clip and torch._C._VariableFunctions.twice is twice")


def test_ops_is_what_is_loaded_now(session: Session) -> None:
    session.run("ops = load('first')")
    first = session.value("shown(ops.soft_clip(x()))")
    session.load(variant("kernel"))
    assert session.value("shown(ops.soft_clip(x()))") != first
    assert session.value("shown(ops.soft_clip(x())) == shown(torch.soft_clip(x()))")
    assert session.value("set(dir(ops)) > {'clip_twice', 'picked', 'soft_clip', 'soft_clip_', 'twice'}")
    assert session.value("list(graft.loaded())") == ["clipped"]
    assert "has no operator soft" in session.error("ops.soft")


COUNTED = """
from torch._dynamo.backends.debugging import aot_eager
torch._dynamo.reset()
made = []

def counted(name, function):
    def backend(graph, inputs):
        made.append(name)
        return aot_eager(graph, inputs)
    return torch.compile(function, backend=backend)

functions = {
    "clips": counted("clips", lambda x: torch.soft_clip(x) * 2),
    "method": counted("method", lambda x: x.soft_clip(2) * 2),
    "twice": counted("twice", lambda x: torch.twice(x) * 2),
    "within": counted("within", lambda x: x.clip_twice(2) * 2),
    "neither": counted("neither", lambda x: torch.tanh(x) * 2),
}

def use():
    made.clear()
    for function in functions.values():
        function(x()).sum().backward()
    return sorted(made)
use()
"""


@pytest.mark.parametrize(
    "name, recompiled",
    [
        ("kernel", []),
        ("header", []),
        ("docs", []),
        ("formula", ["clips", "method", "twice", "within"]),
        ("composite", ["within"]),
    ],
)
def test_only_what_used_the_edited_operator_is_compiled_again(
    session: Session, name: str, recompiled: list[str]
) -> None:
    session.run(COUNTED)
    assert session.value("use()") == []
    session.load(variant(name))
    assert session.value("use()") == recompiled


def test_twelve_edits_do_not_reach_dynamos_limit(session: Session) -> None:
    session.run(COUNTED)
    session.run("strict = torch.compile(lambda x: torch.soft_clip(x, 2), backend='aot_eager', fullgraph=True)")
    for name in ("formula", "first") * 6:
        session.load(variant(name))
        assert session.value("shown(gradient(strict, x())) == shown(gradient(lambda x: torch.soft_clip(x, 2), x()))")
    session.load(variant("formula"))
    assert session.value("use()") == ["clips", "method", "twice", "within"]
    assert "recompile_limit" not in session.said()


def test_old_graph_runs_backward_with_its_own_formula(session: Session) -> None:
    session.run("kept = x(); result = torch.soft_clip(kept, 2); saved = result.grad_fn")
    first = session.value("shown(gradient(lambda x: torch.soft_clip(x, 2), x()))")
    session.load(variant("formula"))
    now = session.value("shown(gradient(lambda x: torch.soft_clip(x, 2), x()))")
    assert now[2:] == pytest.approx([100 * each for each in first[2:]], rel=1e-3)
    assert session.value("[shown(saved._saved_result) == shown(result), saved._saved_limit]") == [True, 2]
    assert session.value("shown(gradient(lambda _: result, kept))") == first


@pytest.mark.parametrize("edited", ["kernel", "formula"])
@pytest.mark.parametrize("is_reentrant", [False, True])
def test_checkpoint_that_recomputes_after_an_edit(session: Session, edited: str, is_reentrant: bool) -> None:
    """Only recomputation without reentrant autograd keeps the old formula, so it raises."""
    session.run(
        "from torch.utils.checkpoint import checkpoint\n"
        "def tripled(x): return torch.soft_clip(x, 2) * 3\n"
        f"kept = x(); result = checkpoint(tripled, kept, use_reentrant={is_reentrant})"
    )
    session.load(variant(edited))
    last = "torch.autograd.grad(result.sum(), kept)" if not is_reentrant else "result.sum().backward() or [kept.grad]"
    found = session.attempt(f"shown(({last})[0])")
    if edited == "formula" and not is_reentrant:
        assert "run the forward again" in found
    else:
        assert found == session.run("shown(torch.autograd.grad(tripled(kept).sum(), kept)[0])")


def test_nothing_changed_does_nothing(session: Session) -> None:
    session.run("state = torch._graft_loads.loads['clipped']")
    session.load(variant("first"))
    assert session.value("torch._graft_loads.loads['clipped'] is state")
    assert session.said() == ""
