"""Two builds at once in one folder: one waits, and has nothing to do."""

from __future__ import annotations

from place import Place


def test_one_builds_and_the_other_waits_for_it(plain: Place) -> None:
    kernel = (plain.home / "my_ops/SoftClip.cpp").read_text(encoding="utf-8")
    before = plain.state()
    with plain.edited({"SoftClip.cpp": f"{kernel}// edited\n"}):
        command = plain.command("build", "--out", plain.home / "at_once")
        both = [plain.start(command) for _ in range(2)]
        said = [process.communicate()[0] for process in both]
    assert [process.returncode for process in both] == [0, 0], said
    (wheel,) = (plain.home / "at_once").iterdir()
    assert all(str(wheel) in each for each in said)
    assert sum("another build is running here (process " in each for each in said) == 1
    (waited,) = (each for each in said if "another build is running here" in each)
    assert f"nothing changed: {wheel}\n" in waited
    assert plain.state() == before
