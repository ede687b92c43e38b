"""What `make test` does around pytest: the environments of several folders at once, and its final messages."""

from __future__ import annotations

import datetime
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import Thread
from zipfile import ZipFile

import pytest
import yaml
from asking import asked
from graft.core import layout as common
from graft.core.console import say
from graft.core.errors import UsageError
from graft.core.layout import Layout, TorchVersion, native_folders
from graft.deliver.built import Built, fingerprint_of, save_built
from graft.options import Request
from helpers import write

from tests.kit import environments, testing
from tests.kit.environments import TEST, folder_of, unpacked, wheel_environment
from tests.kit.nights import faults_of
from tests.kit.parts import Part, may_select, run_parts
from tests.kit.parts import TestsFailed as Failed  # otherwise pytest would collect it
from tests.kit.testing import one_at_a_time, without_warnings_about


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environments of these tests are separate from this repository's."""
    monkeypatch.setattr(environments, "ENVIRONMENTS", tmp_path / "environments")
    yield


def fake_wheel(folder: Path, version: str, text: str = "") -> Path:
    """A wheel of a torch that prints its version, and ``text``."""
    path = folder / f"torch-{version}-py3-none-any.whl"
    folder.mkdir(parents=True, exist_ok=True)
    info = f"torch-{version}.dist-info"
    with ZipFile(path, "w") as archive:
        archive.writestr("torch/__init__.py", f"print({f'{version} {text}'.strip()!r})\n")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", f"torch/__init__.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return path


def torch_of(python: Path) -> str:
    return subprocess.run([python, "-c", "import torch"], capture_output=True, text=True, check=True).stdout.strip()


def requirements(tmp_path: Path) -> Path:
    path = tmp_path / "requirements.txt"
    path.write_text("# nothing\n")
    return path


def test_folders_that_are_tested_at_once_have_environments_of_their_own(tmp_path: Path) -> None:
    needed = requirements(tmp_path)
    layouts = [Layout(pin, (tmp_path / name,), tmp_path / "out") for pin, name in (("1", "a"), ("1", "b"), ("2", "a"))]
    for purpose in (TEST, "stock"):
        assert len({folder_of(purpose, layout) for layout in layouts}) == len(layouts)
    wheels = [fake_wheel(tmp_path / name, f"1+graft.{name}") for name in ("a", "b")]
    with (
        wheel_environment(layouts[0], TEST, wheels[0], needed) as first,
        wheel_environment(layouts[1], TEST, wheels[1], needed) as second,
        unpacked(layouts[0], "stock", wheels[0]) as stock,
    ):
        assert [torch_of(python) for python in (first, second)] == ["1+graft.a", "1+graft.b"]
        assert (stock / "torch/__init__.py").is_file()


def test_environment_belongs_to_one_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = Layout(TorchVersion("1"), (tmp_path,), tmp_path)
    ours = folder_of(TEST, layout)
    monkeypatch.setattr(sys, "base_prefix", "/another")
    assert folder_of(TEST, layout) != ours


def test_new_wheel_is_installed_over_the_old_one(tmp_path: Path) -> None:
    layout, needed = Layout(TorchVersion("1"), (tmp_path,), tmp_path), requirements(tmp_path)
    said = []
    for number, (version, text) in enumerate([("1+graft.a", "one"), ("1+graft.b", "two"), ("1+graft.b", "three")]):
        wheel = fake_wheel(tmp_path / str(number), version, text)
        with wheel_environment(layout, TEST, wheel, needed) as python:
            if number == 0:
                (python.parent.parent / "kept").touch()
            said.append(torch_of(python))
            assert (python.parent.parent / "kept").exists()
    assert said == ["1+graft.a one", "1+graft.b two", "1+graft.b three"]


def test_other_requirements_make_the_environment_anew(tmp_path: Path) -> None:
    layout, needed = Layout(TorchVersion("1"), (tmp_path,), tmp_path), requirements(tmp_path)
    wheel = fake_wheel(tmp_path, "1+graft")
    with wheel_environment(layout, TEST, wheel, needed) as python:
        (python.parent.parent / "old").touch()
    needed.write_text("# nothing, again\n")
    with wheel_environment(layout, TEST, wheel, needed) as python:
        assert not (python.parent.parent / "old").exists()
        assert torch_of(python) == "1+graft"


def parts_in(folder: Path) -> list[Part]:
    """Two parts, with one test each."""
    for name in ("first", "second"):
        (folder / f"test_{name}.py").write_text(f"def test_{name}(): pass\n")
    return [Part("wheel", f"the {name}", [folder / f"test_{name}.py"]) for name in ("first", "second")]


def run(folder: Path, *extra: str) -> None:
    run_parts(Path(sys.executable), parts_in(folder), {}, extra)


def test_all_tests_pass(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(tmp_path)
    assert capfd.readouterr().err.endswith("\nall tests passed\n")


def test_each_part_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(tmp_path)
    out, err = capfd.readouterr()
    assert out == "" and re.fullmatch(
        r"test the first: 1 passed, \d+\.\d s\ntest the second: 1 passed, \d+\.\d s\nall tests passed\n", err
    )


def test_what_pytest_says_of_a_failure_is_shown(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    parts = parts_in(tmp_path)
    (tmp_path / "test_first.py").write_text("def test_first(): assert 1 == 2\n\ndef test_right(): pass\n")
    with pytest.raises(Failed, match="tests failed: the first"):
        run_parts(Path(sys.executable), parts, {}, [])
    out, err = capfd.readouterr()
    assert "FAILED" in out and "assert 1 == 2" in out and out.startswith("=")
    assert "test the first: 1 failed, 1 passed, " in err and "test the second: 1 passed" in err


def test_parts_that_ran_no_test_are_named(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run(tmp_path, "-k", "second")
    assert capfd.readouterr().err.endswith("\nno test was selected from the first\nall selected tests passed\n")


@pytest.mark.parametrize(
    ("words", "is_selected"),
    [
        ([], True),
        (["-x"], True),
        (["-k", "clip"], True),
        (["-kCLIP"], True),
        (["-k", "pool"], False),
        (["-k", "not pool"], True),
        (["-k", "clip and pool"], False),
        (["-k", "pool or (clip and not grow)"], True),
        (["-k", "clip and"], True),
        (["-k", "clip", "-k", "pool"], False),
    ],
)
def test_nothing_is_built_for_a_part_of_which_no_test_can_be_selected(
    tmp_path: Path, words: list[str], is_selected: bool
) -> None:
    write(tmp_path, {"native_functions.yaml": "- func: soft_clip(Tensor self) -> Tensor", "tests/test_a.py": ""})
    assert may_select(words, [tmp_path]) is is_selected
    prepared: list[bool] = []
    test_file = write(tmp_path / "named", {"test_one.py": "def test_soft_clip(): pass\n"}) / "test_one.py"
    part = Part("grammar", "one", [test_file], prepare=lambda: prepared.append(True) or {}, named_in=[tmp_path])
    other = Part("wheel", "another", [test_file])
    with suppress(Failed):
        run_parts(Path(sys.executable), [part, other], {}, words)
    assert prepared == [True] * is_selected


def test_warnings_about_a_fixture_are_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with without_warnings_about(tmp_path):
        for place in (f"{tmp_path}/a.yaml:1: warning: ", f"{tmp_path}/cpu/B.cpp:1:2: warning: "):
            say(f"{place}odd; look")
        say(f"{tmp_path}/a.yaml:1: warning: odd; look\n/elsewhere/a.yaml:1: warning: odd; look")
        say(f"{tmp_path}/a.yaml:1: no such operator; write another")
    say(f"{tmp_path}/a.yaml:1: warning: odd; look")
    assert capsys.readouterr().err.splitlines() == [
        "/elsewhere/a.yaml:1: warning: odd; look",
        f"{tmp_path}/a.yaml:1: no such operator; write another",
        f"{tmp_path}/a.yaml:1: warning: odd; look",
    ]


def test_choice_of_no_test_is_a_failure(tmp_path: Path) -> None:
    with pytest.raises(Failed, match="no test ran; `-k misspelled` selects none"):
        run(tmp_path, "-k", "misspelled")


def test_part_without_tests_is_a_failure(tmp_path: Path) -> None:
    parts = parts_in(tmp_path)
    (tmp_path / "test_first.py").write_text("")
    with pytest.raises(Failed, match="tests failed: the first"):
        run_parts(Path(sys.executable), parts, {}, [])


def test_results_of_each_part_are_kept_where_they_are_asked_for(tmp_path: Path) -> None:
    run_parts(Path(sys.executable), parts_in(tmp_path), {}, [], tmp_path / "results")
    kept = sorted((tmp_path / "results").iterdir())
    assert [path.name for path in kept] == ["1-wheel.xml", "2-wheel.xml"]
    assert all('tests="1"' in path.read_text() for path in kept)
    (tmp_path / "crash").mkdir()
    (tmp_path / "crash/test_first.py").write_text("import os\ndef test_first(): os.abort()\n")
    part = Part("wheel", "one that crashes", [tmp_path / "crash/test_first.py"])
    with pytest.raises(Failed):
        run_parts(Path(sys.executable), [part], {}, [], tmp_path / "results")
    assert (tmp_path / "results/1-wheel.xml").read_text() == ""


SKIPPING = """
import pytest

@pytest.mark.parametrize("n", ["one", "other"])
def test_first(n): pytest.skip("there is no GPU")

def test_of_machine(): pytest.skip("this processor has no AVX9")
"""


@pytest.mark.parametrize(
    ("tests", "extra", "message"),
    [
        (["first: test_first[one]", "first: test_first[other]"], [], ""),
        (
            ["first: test_first[one]"],
            [],
            r"skipped, but not in tests/skips.yaml: first: test_first\[other\]: there is no GPU",
        ),
        (
            ["first: test_first[one]"],
            ["-k", "one or other"],
            r"skipped, but not in tests/skips.yaml: first: test_first\[other\]",
        ),
        (["first: test_first[other]"], ["-k", "other or second"], ""),
        (
            ["first: test_first[one]", "first: test_first[other]", "second: test_second"],
            [],
            "in tests/skips.yaml, but not skipped: second: test_second: there is no GPU",
        ),
        (["first: test_first[one]", "first: test_first[other]", "second: test_second"], ["-k", "first"], ""),
        (["first: test_first[*]"], [], ""),
    ],
)
def test_skips_are_those_that_are_expected(tmp_path: Path, tests: list[str], extra: list[str], message: str) -> None:
    parts_in(tmp_path)
    (tmp_path / "test_first.py").write_text(SKIPPING)
    text = {"pin": "1", "parts": {"wheel": {"there is no GPU": tests}}, "machine": ["^this processor has no "]}
    (tmp_path / "skips.yaml").write_text(yaml.safe_dump(text))
    whole = ["--skips-of=wheel", f"--skips-file={tmp_path / 'skips.yaml'}", *([] if extra else ["--all-of-it"])]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.kit.skips", *whole, *extra, str(tmp_path)]
    for processes in ([], ["--numprocesses=2"]):
        done = subprocess.run(
            [*command, *processes], cwd=common.REPOSITORY, capture_output=True, text=True, check=False
        )
        assert (done.returncode, bool(re.search(message, done.stdout))) == (bool(message), True), done.stdout


def built(tmp_path: Path) -> Layout:
    """A folder whose wheel is built, with an unpacked base."""
    layout = Layout(TorchVersion("1"), (tmp_path / "mine",), tmp_path / "out")
    layout.native.mkdir()
    wheel = fake_wheel(tmp_path, "1+graft.a")
    save_built(layout, Built("stamp", wheel, fingerprint_of(wheel)))
    fake_wheel(layout.base, "1")
    return layout


def request_for(layout: Layout) -> Request:
    return asked(pin=layout.pin, native=layout.natives, out=layout.out, jobs=1)


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the kinds of parts that ``run_tests`` runs, all of which fail, with builds below ``tmp_path``."""
    monkeypatch.setattr(common, "REPOSITORY", tmp_path)
    monkeypatch.setattr(testing, "wheel_environment", partial(wheel_environment, requirements=requirements(tmp_path)))
    ran: list[str] = []

    def note(python: Path, parts: list[Part], *_: object) -> None:
        assert torch_of(python) == "1+graft.a"
        ran.extend(part.kind for part in parts)
        raise Failed("tests failed")

    monkeypatch.setattr(testing, "run_parts", note)
    return ran


def test_parts_are_chosen(tmp_path: Path, chosen: list[str]) -> None:
    layout = built(tmp_path)
    (layout.native / "tests").mkdir()
    (layout.native / "tests/test_mine.py").touch()
    for parts in (["wheel"], ["operators", "builder"], testing.PARTS):
        with pytest.raises(Failed):
            testing.run_tests(request_for(layout), [], parts)
    assert chosen == ["wheel", "operators", "wheel", "operators"]
    for parts, message in ((["builder"], "has no such tests"), (["wheel", "whale"], "--parts whale: no such tests")):
        with pytest.raises(UsageError, match=message):
            testing.run_tests(request_for(layout), [], parts)
    assert all(folder_of(purpose, layout).is_dir() for purpose in (TEST, "stock"))


def test_environments_are_deleted_also_behind_tests_that_fail(tmp_path: Path, chosen: list[str]) -> None:
    layout = built(tmp_path)
    with pytest.raises(Failed):
        testing.run_tests(request_for(layout), [], is_discarding=True)
    left = [path for path in (tmp_path / "environments").rglob("*") if path.is_file()]
    assert left and {path.suffix for path in left} == {".lock", ".running"}
    assert chosen == ["wheel"]


def test_environment_that_is_used_is_not_deleted(tmp_path: Path) -> None:
    layout = Layout(TorchVersion("1"), (tmp_path,), tmp_path)
    with wheel_environment(layout, TEST, fake_wheel(tmp_path, "1"), requirements(tmp_path)) as python:
        thread = Thread(target=environments.discard, args=(layout, [TEST]))
        thread.start()
        thread.join(0.5)
        assert thread.is_alive() and python.is_file()
    thread.join()
    assert not python.is_file()


def test_tests_of_one_folder_wait_for_each_other(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from graft.core.layout import Layout\n"
        "from tests.kit import environments; from tests.kit.testing import one_at_a_time, without_warnings_about\n"
        "environments.ENVIRONMENTS = Path(sys.argv[1]) / 'environments'\n"
        "with one_at_a_time(Layout('1', (Path(sys.argv[1]),), Path()), 'test'): print('runs', flush=True)\n"
    )
    with one_at_a_time(Layout(TorchVersion("1"), (tmp_path,), tmp_path), TEST):
        pipe = subprocess.PIPE
        other = subprocess.Popen([sys.executable, "-c", program, tmp_path], stdout=pipe, stderr=pipe, text=True)
        assert other.stderr and f"the tests of {tmp_path} are running already" in other.stderr.readline()
        assert other.poll() is None
    out, _ = other.communicate()
    assert (other.returncode, out) == (0, "runs\n")


def test_each_folder_s_own_tests_are_run(tmp_path: Path) -> None:
    (tmp_path / "mine/tests").mkdir(parents=True)
    (tmp_path / "mine/tests/test_mine.py").touch()
    (tmp_path / "bare/tests").mkdir(parents=True)
    layout = Layout(TorchVersion("1"), (testing.SHIPPED, tmp_path / "bare", tmp_path / "mine"), tmp_path)
    assert [part.paths for part in testing.own_tests(layout)] == [
        [testing.TESTS / "wheel/shipped"],
        [tmp_path / "mine/tests"],
    ]
    assert not testing.is_shipped(layout)
    assert testing.is_shipped(Layout(TorchVersion("1"), (testing.SHIPPED,), tmp_path))
    spaced = Layout(TorchVersion("1"), (tmp_path / "with space", tmp_path / "b"), tmp_path)
    assert native_folders(testing.named(spaced)) == spaced.natives


def test_part_whose_file_is_skipped_as_a_whole(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text("import pytest\npytest.skip('no reason', allow_module_level=True)\n")
    (tmp_path / "test_other.py").write_text("def test_it(): pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.kit.skips", "--skips-of=wheel", str(tmp_path)]
    done = subprocess.run(command, cwd=common.REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "wheel: skipped, but not in tests/skips.yaml: test_it: no reason" in done.stdout


def test_steps_of_the_night_are_targets_of_the_makefile() -> None:
    targets = re.findall(r"^([a-z -]+):", (common.REPOSITORY / "Makefile").read_text(), re.M)
    known = {name for line in targets for name in line.split()}
    noxfile = (common.REPOSITORY / "noxfile.py").read_text()
    steps = dict(re.findall(r'^step\("(\w+)", "[^"]+", "([\w-]+)"', noxfile, re.M))
    assert len(steps) == 7 and set(steps.values()) <= known
    command = [sys.executable, "-m", "nox", "--list-sessions", "--json", "--tags", "nightly"]
    listed = subprocess.run(command, cwd=common.REPOSITORY, capture_output=True, text=True, check=True).stdout
    assert {session["session"].partition("(")[0] for session in json.loads(listed)} == {
        *steps,
        *("matrix", "arm", "debian", "faster", "commands", "dates"),
    }


def test_a_step_of_the_night_has_its_own_arguments(tmp_path: Path) -> None:
    """``make test-nightly ARGS=sanitizers JOBS=3`` passes JOBS on, but not ARGS; a step that fails does not stop it."""
    (tmp_path / "Makefile").write_text(
        "test-sanitize fuzz:\n\t@echo '$@ ARGS=<$(ARGS)> JOBS=<$(JOBS)>'; test $@ = fuzz\n"
    )
    env = {**os.environ, "MAKEFLAGS": " -- JOBS=3 ARGS=sanitizers"}
    shutil.copy(common.REPOSITORY / "noxfile.py", tmp_path)
    (tmp_path / "tests").symlink_to(common.REPOSITORY / "tests")
    (tmp_path / "scripts").symlink_to(common.REPOSITORY / "scripts")
    command = [sys.executable, "-m", "nox", "-s", "sanitizers", "fuzz"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "test-sanitize ARGS=<> JOBS=<3>" in done.stdout and "fuzz ARGS=<--minutes 20> JOBS=<3>" in done.stdout
    assert "* sanitizers: failed" in done.stderr and "* fuzz: success" in done.stderr


NIGHTS = """
## Nightly

| step | result | date |
|---|---|---|
| fuzz | 9 calls \\| no finding | 2026-11-20 |
| slow | passed | 2026-11-11 |
| arm | not run | |
| other | passed | 2026-11-20 |

## Next
"""


def test_step_of_the_night_that_passed_long_ago_is_named() -> None:
    assert faults_of(NIGHTS, {"fuzz", "slow", "arm", "mutants"}, datetime.date(2026, 11, 26)) == [
        "mutants: the table has no row for this step",
        "other: there is no such step",
        "slow: it last passed on 2026-11-11, 15 days ago",
        "arm: `` is no date: it has not passed",
    ]
    assert "fuzz" not in " ".join(faults_of(NIGHTS, {"fuzz"}, datetime.date(2026, 11, 27)))
