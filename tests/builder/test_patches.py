"""The patch series: all errors are reported at once, and a failed patch leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from graft.core.errors import UsageError
from graft.core.layout import REPOSITORY
from graft.inputs.patches import load_series, patched, pin_files
from helpers import refused, write

PATCH = """Subject: say b
Why: a test
Kind: intended difference
Until: never

--- a/torch/text.py
+++ b/torch/text.py
@@ -1,3 +1,3 @@
 one
-a
+b
 three
"""


@pytest.fixture
def base(tmp_path: Path) -> Path:
    return write(tmp_path / "base", {"torch/text.py": "one\na\nthree\n"})


def write_series(folder: Path, series: str, **patches: str) -> Path:
    return write(folder, {"series": series, **{f"{name}.patch": text for name, text in patches.items()}})


def test_patch_may_be_of_another_pin_and_builds_on_the_first(tmp_path: Path, base: Path) -> None:
    write_series(tmp_path / "other", "say_b.patch\n", say_b=PATCH)
    second = PATCH.replace("-a", "-b").replace("+b\n", "+c\n")
    folder = write_series(tmp_path / "patches", "../other/say_b.patch\nsay_c.patch\n", say_c=second)
    patches = load_series(folder)
    assert [patch.path for patch in patches] == [tmp_path / "other/say_b.patch", folder / "say_c.patch"]
    assert pin_files(folder) == [folder / "pin.yaml", folder / "series"]
    assert patched(patches[:1], base, tmp_path / "scratch") == {"torch/text.py": b"one\nb\nthree\n"}
    assert patched(patches, base, tmp_path / "scratch") == {"torch/text.py": b"one\nc\nthree\n"}
    assert (base / "torch/text.py").read_text() == "one\na\nthree\n"


def test_every_patch_that_does_not_apply_is_named_with_its_hunk(tmp_path: Path, base: Path) -> None:
    changed = {"broken": (" three", " four"), "elsewhere": ("text.py", "nowhere.py"), "damaged": ("+b\n", "b\n")}
    patches = {"say_b": PATCH, **{name: PATCH.replace(*change) for name, change in changed.items()}}
    folder = write_series(tmp_path / "patches", "".join(f"{name}.patch\n" for name in patches), **patches)
    error = refused(UsageError, patched, load_series(folder), base, tmp_path / "scratch")
    assert error.what.splitlines() == [
        f"{folder}/broken.patch:8: this hunk does not apply to torch/text.py:1",
        f"{folder}/elsewhere.patch:7: it changes torch/nowhere.py, which the base wheel does not contain",
        f"{folder}/damaged.patch:11: the patch is damaged here",
    ]
    assert list((tmp_path / "scratch").iterdir()) == []


def test_every_fault_of_a_series_is_reported(tmp_path: Path) -> None:
    patches = {"twice": PATCH, "headless": PATCH.split("\n\n", 1)[1], "forgotten": PATCH}
    listed = "twice.patch\ntwice.patch\nmissing.patch\nheadless.patch\n"
    folder = write_series(tmp_path / "patches", listed, **patches)
    error = refused(UsageError, load_series, folder)
    series = folder / "series"
    assert error.what.splitlines() == [
        f"{series}:2: twice.patch is already listed in line 1",
        f"{series}:3: missing.patch is listed, but does not exist",
        f"{folder}/headless.patch:1: no header; the first line must be `Subject: what it does`",
        f"{folder}/forgotten.patch: not listed in {series}",
    ]


def test_the_repository_s_own_series_are_sound() -> None:
    folders = [path.parent for path in REPOSITORY.glob("patches/*/pin.yaml")]
    assert len(folders) > 1
    patches = [load_series(folder) for folder in folders]
    assert any(patches)


def test_missing_series_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="series: no such file"):
        load_series(tmp_path)
