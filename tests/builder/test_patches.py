"""The patch series: all errors are reported at once, and a failed patch leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import pytest
from graft.core.errors import UsageError
from graft.core.layout import REPOSITORY
from graft.inputs.patches import load_series, patched, pin_files

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
    base = tmp_path / "base"
    (base / "torch").mkdir(parents=True)
    (base / "torch/text.py").write_text("one\na\nthree\n")
    return base


def write_series(folder: Path, series: str, **patches: str) -> Path:
    folder.mkdir()
    (folder / "series").write_text(series)
    for name, text in patches.items():
        (folder / f"{name}.patch").write_text(text)
    return folder


def test_the_repository_s_own_series_are_sound() -> None:
    folders = [path.parent for path in REPOSITORY.glob("patches/*/pin.yaml")]
    assert len(folders) > 1
    patches = [load_series(folder) for folder in folders]
    assert any(patches)


def test_patch_is_applied_and_the_base_left_alone(tmp_path: Path, base: Path) -> None:
    series = load_series(write_series(tmp_path / "patches", "say_b.patch\n", say_b=PATCH))
    assert patched(series, base, tmp_path / "scratch") == {"torch/text.py": b"one\nb\nthree\n"}
    assert (base / "torch/text.py").read_text() == "one\na\nthree\n"


def test_patch_of_another_pin_can_be_named(tmp_path: Path, base: Path) -> None:
    write_series(tmp_path / "other", "say_b.patch\n", say_b=PATCH)
    folder = write_series(tmp_path / "patches", "../other/say_b.patch\n")
    (patch,) = load_series(folder)
    assert patch.path == tmp_path / "other/say_b.patch"
    assert pin_files(folder) == [folder / "pin.yaml", folder / "series"]
    assert patched([patch], base, tmp_path / "scratch") == {"torch/text.py": b"one\nb\nthree\n"}


def test_second_patch_builds_on_the_first(tmp_path: Path, base: Path) -> None:
    second = PATCH.replace("-a", "-b").replace("+b\n", "+c\n")
    second = second.replace("+++ c", "+++ b")
    folder = write_series(tmp_path / "patches", "say_b.patch\nsay_c.patch\n", say_b=PATCH, say_c=second)
    assert patched(load_series(folder), base, tmp_path / "scratch") == {"torch/text.py": b"one\nc\nthree\n"}


def test_every_patch_that_does_not_apply_is_named_with_its_hunk(tmp_path: Path, base: Path) -> None:
    series = "say_b.patch\nbroken.patch\nelsewhere.patch\ndamaged.patch\n"
    folder = write_series(
        tmp_path / "patches",
        series,
        say_b=PATCH,
        broken=PATCH.replace(" three", " four"),
        elsewhere=PATCH.replace("text.py", "nowhere.py"),
        damaged=PATCH.replace("+b", "b"),
    )
    with pytest.raises(UsageError) as caught:
        patched(load_series(folder), base, tmp_path / "scratch")
    assert caught.value.what.splitlines() == [
        f"{folder}/broken.patch:8: this hunk does not apply to torch/text.py:1",
        f"{folder}/elsewhere.patch:7: it changes torch/nowhere.py, which the base wheel does not contain",
        f"{folder}/damaged.patch:11: the patch is damaged here",
    ]
    assert list((tmp_path / "scratch").iterdir()) == []


def test_every_fault_of_a_series_is_reported(tmp_path: Path) -> None:
    headless = PATCH.split("\n\n", 1)[1]
    folder = write_series(
        tmp_path / "patches",
        "twice.patch\ntwice.patch\nmissing.patch\nheadless.patch\n",
        twice=PATCH,
        headless=headless,
        forgotten=PATCH,
    )
    with pytest.raises(UsageError) as caught:
        load_series(folder)
    series = folder / "series"
    assert caught.value.what.splitlines() == [
        f"{series}:2: twice.patch is already listed in line 1",
        f"{series}:3: missing.patch is listed, but does not exist",
        f"{folder}/headless.patch:1: no header; the first line must be `Subject: what it does`",
        f"{folder}/forgotten.patch: not listed in {series}",
    ]


def test_missing_series_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="series: no such file"):
        load_series(tmp_path)
