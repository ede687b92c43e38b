"""Edits in a random order, with failures in between: after each, a session agrees with a fresh process.

In CI the versions are those that all tests of this folder load; by night they are new texts.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from clipped import HELD, HELD_NAMES, LOAD, QUICK, SETUP, TEXTS, TOOLS, VARIANTS, built, variant
from graft.core.files import write_atomically
from graft.core.layout import HOME
from sessions import Folder, Raised, Session, agrees

EDITS = 200
# How long the night makes new texts, and where it notes its seed and how many of the edits it has made.
SECONDS = 55 * 60
NOTE = HOME / "random-edits.json"

# What is held without a compiler, and the programs that need no more.
HELD_AT_ONCE = "\n".join(
    [
        "from torch import soft_clip as held",
        *re.findall(r"^method, op, .*", HELD, re.M),
        "pickled, model = pickle.dumps(torch.soft_clip), Model()",
    ]
)
AT_ONCE = {
    name: code
    for name, code in QUICK.items()
    if not re.search(r"compile|export|jit|scripted|program\.|(graph|aot|decomposed)\(", code)
}

# Loads a version, and fails in one of the steps.
FAILING = """
from graft.session import caches, loads, names
STEPS = [(caches, "update_packets"), (names, "merge"), (names, "publish_names"), (loads, "_tell"), (caches, "forget")]

def fails(number, change):
    owner, name = STEPS[number % len(STEPS)]
    upstreams = getattr(owner, name)
    def fail(*arguments, **named):
        setattr(owner, name, upstreams)
        raise RuntimeError("injected")
    setattr(owner, name, fail)
    try:
        change()
    except RuntimeError as error:
        return str(error) == "injected"
    finally:
        setattr(owner, name, upstreams)
    return False
"""


def follows(session: Session, where: Path, folder: Path, *, is_whole: bool) -> None:
    """Check a session that has just loaded a folder: all programs but those by Inductor, or those that run at once."""
    setup, programs = (SETUP, QUICK) if is_whole else (TOOLS + HELD_AT_ONCE, AT_ONCE)
    session.run(f"for name in {HELD_NAMES}: globals().pop(name, None)")
    session.attempt(setup)  # as a user runs a cell again
    agrees(session, where, folder, setup, programs)


@dataclass(frozen=True)
class Step:
    """How the next version comes: at once, after the last was unloaded, or after a load that failed at a place."""

    how: str
    place: int

    @classmethod
    def drawn(cls, draw: random.Random) -> Step:
        return cls(draw.choice(["", "", "unload", "fail"]), draw.randrange(5))

    def take(self, session: Session, where: Path, now: Path | None, new: Path, *, is_whole: bool) -> None:
        """Load ``new``, where ``now`` is loaded."""
        if now and self.how == "unload":
            session.run(f"graft.unload({now.name!r})")
            assert "graft.load" in session.error("torch.soft_clip")
        if now and self.how == "fail" and session.value(f"fails({self.place}, lambda: graft.load({str(new)!r}))"):
            follows(session, where, now, is_whole=False)
        session.load(new)
        follows(session, where, new, is_whole=is_whole)


@pytest.mark.parametrize(
    ("edits", "seed"),
    [(40, 1384278132), pytest.param(EDITS, random.randrange(2**32), marks=pytest.mark.slow, id="200")],
)
def test_session_follows_versions_in_any_order(where: Path, edits: int, seed: int) -> None:
    draw, history, now = random.Random(seed), [f"seed {seed}"], None
    with Session(where) as session, told(history):
        session.run(LOAD + FAILING)
        for number in range(edits):
            name = draw.choice([each for each in VARIANTS if not now or each != now.parent.name])
            step = Step.drawn(draw)
            history.append(f"{number} {name} {step}")
            step.take(session, where, now, variant(name), is_whole=number % 20 == 19)
            now = variant(name)


@contextmanager
def told(history: Sequence[str]) -> Iterator[None]:
    """Tell what was done until an error: the seed, and the last versions."""
    try:
        yield
    except (AssertionError, Raised) as error:
        raise AssertionError("\n".join([history[0], *history[1:][-5:], str(error)])) from error


_ENTRIES, _FORMULAS = "native_functions.yaml", "derivatives.yaml"
_KERNEL, _COMPOSED = "SoftClipKernel.cpp", "ClipTwice.cpp"
_META, _DECOMPOSED, _LIMIT = "python/_meta_registrations.py", "python/_decomp/decompositions.py", "const Scalar& limit"

# What may be edited, each in some ways: files, texts in them, and what these become, with a number.
CHOICES: dict[str, list[list[tuple[str, str, str]]]] = {
    "kernel": [[(_KERNEL, "mul(limit)", "mul(limit).mul({n})")]],
    "stub": [[("cpu/CubedKernel.cpp", "a * a * a", "a * a * a * {n}")]],
    "header": [[("Factor.h", "double value = 1", "double value = {n}")]],
    "formulas": [
        [(_FORMULAS, "self: 2 *", "self: {n} *"), (_FORMULAS, "self: 3 *", "self: {n} *")],
        [(_FORMULAS, "cubed(Tensor self) -> Tensor\n  self: 3 * grad * self * self\n  result: auto_element_wise", "")],
    ],
    "composed": [[(_COMPOSED, "limit));", "limit)).mul({n});")]],
    "docs": [[("docs/soft_clip.rst", "softly", "softly, {n}")]],
    "decomposition": [[(_DECOMPOSED, "self * self * self", "self.pow(3) * {n}")]],
    "tags": [[(_ENTRIES, "    CPU: cubed_cpu\n", "    CPU: cubed_cpu\n  tags: pointwise\n")]],
    "methods": [[(_ENTRIES, "variants: function, method\n  dispatch:\n    CPU: cubed", "dispatch:\n    CPU: cubed")]],
    "schema": [
        [(file, "Scalar limit=1", "Scalar limit={n}") for file in (_ENTRIES, _FORMULAS)],
        [
            *((file, "Scalar limit=1", "Scalar limit=1, int more={n}") for file in (_ENTRIES, _FORMULAS)),
            *((file, _LIMIT, f"{_LIMIT}, int64_t more") for file in ("SoftClip.cpp", _KERNEL, _COMPOSED)),
            (_KERNEL, "mul(limit)", "mul(limit).mul(more)"),
        ],
    ],
    "names": [
        [
            *((file, "cubed(", "third_power(") for file in (_ENTRIES, _FORMULAS)),
            ("Cubed.cpp", "ops/cubed_native", "ops/third_power_native"),
            *((file, "aten.cubed", "aten.third_power") for file in (_META, _DECOMPOSED)),
        ]
    ],
}


def texts(chosen: Mapping[str, tuple[int, int]]) -> dict[str, str]:
    """Return the folder with edits: by what may be edited, the way and the number."""
    found = dict(TEXTS)
    for what, (way, number) in chosen.items():
        for file, before, after in CHOICES[what][way]:
            found[file] = found[file].replace(before, after.replace("{n}", str(number)))
    found[_FORMULAS] = found[_FORMULAS].replace("- name: \n", "")
    return found


@pytest.mark.slow
def test_session_follows_new_texts(where: Path) -> None:
    """Goes on where the last night has ended, until it has made all edits of a seed."""
    noted = json.loads(NOTE.read_text()) if NOTE.is_file() else {"done": EDITS}
    seed, done = (random.randrange(2**32), 0) if noted["done"] >= EDITS else (noted["seed"], noted["done"])
    draw, history, now = random.Random(seed), [f"seed {seed}, from edit {done}"], None
    chosen: dict[str, tuple[int, int]] = {}
    end = time.monotonic() + SECONDS
    with Session(where) as session, told(history):
        session.run(LOAD + FAILING)
        for number in range(EDITS):
            for what in draw.sample([*CHOICES], draw.choice([1, 1, 2])):
                is_taken_back = draw.random() < 0.3 and chosen.pop(what, None)
                if not is_taken_back:
                    chosen[what] = draw.randrange(len(CHOICES[what])), draw.randrange(2, 100)
            step = Step.drawn(draw)
            if number < done:
                continue
            if time.monotonic() > end:
                break
            history.append(f"{number} {chosen} {step}")
            new = Folder(where / str(number) / "clipped", texts(chosen)).path
            built([new])
            step.take(session, where, now, new, is_whole=number % 10 == 9)
            now = new
            write_atomically(NOTE, json.dumps({"seed": seed, "done": number + 1}))
    print(history[0], f"to {number}")
