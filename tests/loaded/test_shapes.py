"""``graft.load`` after an edit that changes what a schema asks of its bindings, also where that fails half-way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from clipped import built
from sessions import Folder, Session


@dataclass(frozen=True)
class Shape:
    """The operator ``shaped`` with some arguments and results.

    Args:
        entries: its overloads, each with the C++ of its kernel.
        calls: expressions and their values for ``x``, which is two ones.
        variants: where it is bound.
        docs: its documentation, if it has any.
    """

    entries: dict[str, str]
    calls: dict[str, object]
    variants: str = "function, method"
    docs: str = ""

    @property
    def texts(self) -> dict[str, str]:
        """The native folder."""
        entry = "- func: {}\n  variants: {}\n  dispatch:\n    CompositeExplicitAutograd: kernel_{}\n"
        variants = [self.variants, *["function"] * len(self.entries)]  # an out variant is no method
        entries = [entry.format(*each) for each in zip(self.entries, variants, range(len(self.entries)), strict=False)]
        kernels = "\n".join(cpp.replace("KERNEL", f"kernel_{n}") for n, cpp in enumerate(self.entries.values()))
        source = f"#include <ATen/ATen.h>\nnamespace at::native {{\n{kernels}\n}}\n"
        docs = {"docs/shaped.rst": f"{self.docs}\n"} if self.docs else {}
        return {"native_functions.yaml": "".join(entries), "Shaped.cpp": source, **docs}


ALONE = {"shaped(Tensor self) -> Tensor": "Tensor KERNEL(const Tensor& self) { return self.mul(2); }"}
OUT = {
    "shaped.out(Tensor self, *, Tensor(a!) out) -> Tensor(a!)": (
        "Tensor& KERNEL(const Tensor& self, Tensor& out) { return out.copy_(self.mul(2)); }"
    )
}
PAIR = "std::tuple<Tensor, Tensor> KERNEL(const Tensor& self) { return {self.mul(2), self.mul(3)}; }"

SHAPES = {
    "no argument": Shape(ALONE, {"torch.shaped(x)": [2, 2], "x.shaped()": [2, 2]}, docs="Doubles."),
    "keyword": Shape(
        {
            "shaped(Tensor self, *, float plus=0) -> Tensor": (
                "Tensor KERNEL(const Tensor& self, double plus) { return self + plus; }"
            )
        },
        {"torch.shaped(x, plus=2)": [3, 3], "x.shaped(plus=3)": [4, 4], "x.shaped()": [1, 1]},
    ),
    "argument": Shape(
        {
            "shaped(Tensor self, Scalar other) -> Tensor": (
                "Tensor KERNEL(const Tensor& self, const Scalar& other) { return self.mul(other); }"
            )
        },
        {"torch.shaped(x, 2)": [2, 2], "x.shaped(3)": [3, 3]},
        docs="Multiplies.",
    ),
    "method": Shape(ALONE, {"x.shaped()": [2, 2], "hasattr(torch, 'shaped')": False}, "method", "Doubles."),
    "function": Shape(ALONE, {"torch.shaped(x)": [2, 2], "hasattr(x, 'shaped')": False}, "function"),
    "pair": Shape(
        {"shaped(Tensor self) -> (Tensor first, Tensor second)": PAIR},
        {"torch.shaped(x).first": [2, 2], "x.shaped().second": [3, 3]},
        docs="Two.",
    ),
    "other names": Shape(
        {"shaped(Tensor self) -> (Tensor one, Tensor two)": PAIR},
        {"torch.shaped(x).one": [2, 2], "x.shaped().two": [3, 3]},
    ),
    "out": Shape(ALONE | OUT, {"torch.shaped(x, out=torch.empty(2))": [2, 2], "x.shaped()": [2, 2]}, docs="Doubles."),
    "in place": Shape(
        {
            **ALONE,
            "shaped_(Tensor(a!) self) -> Tensor(a!)": "Tensor& KERNEL(Tensor& self) { return self.mul_(2); }",
            **OUT,
        },
        {"torch.shaped_(x.clone())": [2, 2], "x.shaped()": [2, 2]},
    ),
}

# Each shape is compiled, so CI has some that differ in all that bindings have: arguments, results, variants.
SOME = ("no argument", "argument", "pair", "out", "method")

BEGINNING = """
x = torch.ones(2)
def shown(value):
    return value.tolist() if isinstance(value, torch.Tensor) else value
def documented(name):
    owners = [each for each in (torch, torch.Tensor) if hasattr(each, name)]
    return [(getattr(each, name).__doc__ or "").strip().splitlines()[-1:] for each in owners]
"""


@pytest.fixture(scope="module")
def folders(where: Path) -> dict[str, Path]:
    """The native folder of each shape. All are loaded by the name ``shaped``; those of ``SOME`` are built."""
    found = {name: Folder(where / name / "shaped", shape.texts).path for name, shape in SHAPES.items()}
    built([found[name] for name in SOME])
    return found


@pytest.fixture(scope="module")
def only(where: Path, folders: dict[str, Path]) -> Iterator[Session]:
    """The session of all tests."""
    with Session(where) as session:
        session.run(BEGINNING)
        yield session
        assert session.ended() == 0


@pytest.fixture
def session(only: Session, folders: dict[str, Path]) -> Session:
    """The session, with one of the shapes."""
    only.load(folders["no argument"])
    return only


def has(session: Session, name: str) -> None:
    """Check that the operator in a session has a shape."""
    shape = SHAPES[name]
    for call, value in shape.calls.items():
        assert session.value(f"shown({call})") == value, (name, call)
    schemas = [each.split("(")[0].partition(".")[2] for each in shape.entries if not each.startswith("shaped_")]
    assert session.value("sorted(torch.ops.aten.shaped.overloads())") == [each or "default" for each in sorted(schemas)]
    docs = session.value("documented('shaped')")
    assert not shape.docs or docs[0] == [shape.docs]  # a method's may name the function
    others = {other.docs for other in SHAPES.values()} - {shape.docs, ""}
    assert not [each for each in docs if others.intersection(each)], docs


def tour(count: int) -> Iterator[int]:
    """Yield numbers below ``count`` so that each comes directly behind each other one."""
    for first in range(count):
        for other in range(first + 1, count):
            yield first
            yield other
    yield 0


@pytest.mark.parametrize("shapes", [SOME, pytest.param([*SHAPES], marks=pytest.mark.slow)], ids=["some", "all"])
def test_every_shape_follows_every_other(session: Session, folders: dict[str, Path], shapes: Sequence[str]) -> None:
    built([folders[name] for name in shapes])
    names = [shapes[number] for number in tour(len(shapes))]
    assert {*pairwise(names)} >= {(one, other) for one in shapes for other in shapes if one != other}
    session.run("held = torch.shaped")
    for name in names:
        session.load(folders[name])
        has(session, name)
        if "function" in SHAPES[name].variants:
            assert session.value("torch.shaped is held")


def test_unloaded_and_loaded_again_is_the_same_function(session: Session, folders: dict[str, Path]) -> None:
    session.run("held, method = torch.shaped, torch.Tensor.shaped")
    for name in ("argument", "no argument"):
        session.run("graft.unload('shaped')")
        assert "graft.load" in session.error("held(x)") and "graft.load" in session.error("method(x)")
        session.load(folders[name])
        has(session, name)
        assert session.value("torch.shaped is held and torch.Tensor.shaped is method")


# Raises an exception where the n-th line of the session's modules runs first, or sends a signal there.
INJECTED = """
import os, pathlib, signal, sys
from graft.session import loads
PARTS = tuple(f"graft/{part}" for part in ("session/", "deliver/shipped/publish.py"))
def swap(to):
    if to:
        graft.load(to)
    elif "shaped" in loads.state().loads:
        loads.unload("shaped")
def injected(to, point, is_signal):
    seen = set()
    def line(frame, event, _):
        place = frame.f_code.co_filename, frame.f_lineno
        if event == "line" and place not in seen:
            seen.add(place)
            if len(seen) == point:
                sys.settrace(None)
                if not is_signal:
                    raise RuntimeError("injected")
                os.kill(os.getpid(), signal.SIGINT)
        return line
    def call(frame, event, _):
        return line if any(part in frame.f_code.co_filename for part in PARTS) else None
    built = to and graft.build(to)
    sys.settrace(call)
    try:
        loads.use("shaped", built, pathlib.Path(to)) if to else loads.unload("shaped")
        raised = ""
    except (RuntimeError, KeyboardInterrupt) as error:
        raised = type(error).__name__
    finally:
        sys.settrace(None)
    return len(seen) < point, raised, [str(load.folder) for load in loads.state().loads.values()]
"""


@pytest.mark.parametrize("is_signal", [False, True], ids=["failure", "interrupt"])
@pytest.mark.parametrize("step", [67, pytest.param(7, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("before", "after"),
    [("no argument", "argument"), ("argument", "no argument"), ("", "argument"), ("no argument", "")],
)
def test_swap_that_fails_half_way(
    session: Session, folders: dict[str, Path], before: str, after: str, step: int, is_signal: bool
) -> None:
    """At points of a swap: the operator is the old or the new one, and the next load of either works."""
    session.run(INJECTED)
    names = {str(path): name for name, path in folders.items()}
    path = {name: repr(str(folder)) for name, folder in folders.items()} | {"": "None"}
    point, count = 1, 0
    while True:
        session.run(f"swap({path[before]})")
        is_over, raised, loaded = session.value(f"injected({path[after]}, {point}, {is_signal})")
        if is_over:
            break
        assert raised, point
        for name in [names[each] for each in loaded]:
            has(session, name)
        if not loaded:
            assert session.value("hasattr(torch, 'shaped') or hasattr(x, 'shaped')") is False
        for name in (after, before):
            session.run(f"swap({path[name]})")
            if name:
                has(session, name)
        point, count = point + step, count + 1
    assert count > 1
