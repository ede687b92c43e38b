"""An hour of random edits, clocks, stops and reverts: each wheel has the bytes of one that is built from nothing."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from pathlib import Path
from zlib import crc32

import pytest
from helpers import write
from place import Place, sha256
from snippets import write_shown_folder

HOURS = 1.0

KERNEL = """#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/soft_clip_native.h>
#include "{home}/elsewhere.h"
#include "inside.h"
#include "omp.h"
#ifndef HIDING
#define HIDING 1
#endif
#if __has_include("lib/asked.h") && __has_include("{home}/also.h")
#define ASKED 11
#else
#define ASKED 1
#endif

namespace at::native {{

Tensor soft_clip(const Tensor& self, const Scalar& limit) {{
  return self.div(limit).tanh().mul(limit).mul(ELSEWHERE * INSIDE * HIDING * ASKED * {factor});
}}

}} // namespace at::native
"""

FORMULA = """- name: soft_clip(Tensor self, Scalar limit=1) -> Tensor
  self: grad * (1 - (result / limit).pow(2)).conj(){more}
  result: auto_element_wise
"""


def texts_of(home: Path) -> dict[str, list[str | None]]:
    """Return the texts that each file of the home folder may have, or None where it may be missing. The first texts
    together are a valid folder.
    """
    return {
        "my_ops/SoftClip.cpp": [KERNEL.format(home=home, factor=factor) for factor in (1, 2)],
        "my_ops/inside.h": ["#define INSIDE 1\n", "#define INSIDE 3\n", "#error a mistake\n"],
        "elsewhere.h": ["#define ELSEWHERE 1\n", "#define ELSEWHERE 5\n"],
        # The compiler's own, unless a header of the folder hides it; the one in cpu/ does not.
        "my_ops/omp.h": [None, "#define HIDING 7\n"],
        "my_ops/cpu/omp.h": [None, "#define HIDING 13\n"],
        "my_ops/lib/asked.h": [None, ""],
        "also.h": ["", None],
        "my_ops/derivatives.yaml": [FORMULA.format(more=more) for more in ("", " * 1")],
        "my_ops/docs/soft_clip.rst": ["A docstring.\n", "Another docstring.\n"],
    }


def save(path: Path, text: str | None, draw: random.Random) -> None:
    """Save a file, in place or by renaming another, whose clock may be wrong by years; or delete it."""
    if text is None:
        path.unlink(missing_ok=True)
        return
    path.parent.mkdir(exist_ok=True)
    if draw.random() < 0.5:
        path.write_text(text, encoding="utf-8")
    else:
        other = write(path.parent, {"saved~": text}) / "saved~"
        other.replace(path)
    # A text may come back with its time, as a package or a copy has it.
    seconds = draw.choice([time.time() + draw.choice([0, -1e8, 1e8]), 1e9 + crc32(text.encode()) % 1e8])
    os.utime(path, (seconds, seconds))


def from_nothing(home: Path, base: Path, folder: Path) -> tuple[str, str] | None:
    """Build the folder in another repository. Return the name and the hash of the wheel, if it compiles."""
    other = Place(folder, base, shares=("base",))
    other.natives = [home / "my_ops"]
    done = other.build()
    found = (other.wheel.name, sha256(other.wheel)) if done.code == 0 else None
    shutil.rmtree(folder)
    return found


def change_meanwhile(
    place: Place, texts: dict[str, list[str | None]], state: dict[str, int], draw: random.Random
) -> None:
    """Build, and save the header elsewhere meanwhile. The snapshot and the compilers may see either text."""
    process = place.start(place.command())
    time.sleep(draw.uniform(0, 10))
    state["elsewhere.h"] = 1 - state["elsewhere.h"]
    save(place.home / "elsewhere.h", texts["elsewhere.h"][state["elsewhere.h"]], draw)
    process.communicate()


@pytest.mark.slow
def test_no_edit_is_missed(base: Path, tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    draw, place, known = random.Random(seed), Place(tmp_path / "place", base, shares=("base",)), {}
    write_shown_folder(place.home / "my_ops")
    texts = texts_of(place.home)
    state = dict.fromkeys(texts, 0)
    write(place.home, {name: each[0] for name, each in texts.items() if each[0] is not None})
    history, end = [f"seed {seed}"], time.monotonic() + HOURS * 3600
    while time.monotonic() < end:
        for name in draw.sample(list(texts), draw.choice([0, 1, 1, 2])):
            state[name] = draw.randrange(len(texts[name]))
            save(place.home / name, texts[name][state[name]], draw)
        if draw.random() < 0.2:  # the next build finds it changed, or changing
            change_meanwhile(place, texts, state, draw)
            history.append(f"changed meanwhile: {list(state.values())}")
        stop = draw.choice([None, signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
        history.append(f"{list(state.values())} {stop}")
        if stop:
            process = place.start(place.command())
            time.sleep(draw.uniform(0, 20))
            process.send_signal(stop)
            # Not waiting for it: a build that goes on at once must not be disturbed by what is left of the first.
            if draw.random() < 0.5:
                process.wait()
        done = place.build()
        if stop:
            process.communicate()
        key = tuple(state.values())
        if key not in known:
            known[key] = from_nothing(place.home, base, tmp_path / "fresh")
        found = (place.wheel.name, sha256(place.wheel)) if done.code == 0 else None
        assert found == known[key], "\n".join([*history, done.said])
    assert len(history) > 10, "too few builds in an hour to tell anything"
    print(f"{len(history) - 1} builds of {len(known)} folders")
