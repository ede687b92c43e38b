"""What `make test` does around pytest: environments, chosen parts, what is reported of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from argparse import Namespace
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Thread

import pytest
import yaml
from asking import asked
from graft.checkout.live import Live, RefusedOperatorsError
from graft.core import layout as common
from graft.core.console import say
from graft.core.errors import UsageError
from graft.core.files import STAMP
from graft.core.layout import Layout, TorchVersion, native_folders
from graft.deliver.built import Built, fingerprint_of, save_built
from graft.options import Request
from helpers import make_wheel, write

from tests.kit import environments, seconds, testing
from tests.kit.environments import TEST, folder_of, unpacked, wheel_environment
from tests.kit.parts import Suite, run_parts
from tests.kit.parts import TestsFailed as Failed  # otherwise pytest would collect it
from tests.kit.testing import one_at_a_time, without_warnings_about

# -- environments


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The environments of these tests are separate from this repository's."""
    monkeypatch.setattr(environments, "HOME", tmp_path)
    monkeypatch.setenv("GRAFT_HOME", str(tmp_path))
    yield


def fake_wheel(folder: Path, version: str, text: str = "") -> Path:
    """A wheel of a torch that prints its version, and ``text``."""
    folder.mkdir(parents=True, exist_ok=True)
    info = f"torch-{version}.dist-info"
    members = {
        "torch/__init__.py": f"print({f'{version} {text}'.strip()!r})\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": f"torch/__init__.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n",
    }
    return make_wheel(folder / f"torch-{version}-py3-none-any.whl", members)


def torch_of(python: Path) -> str:
    return subprocess.run([python, "-c", "import torch"], capture_output=True, text=True, check=True).stdout.strip()


def requirements(tmp_path: Path) -> Path:
    return write(tmp_path, {"requirements.txt": "# nothing\n"}) / "requirements.txt"


def layout_of(native: Path, pin: str = "1") -> Layout:
    return Layout(TorchVersion(pin), (native,), native.parent / "out")


def test_folders_that_are_tested_at_once_have_environments_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed, layouts = requirements(tmp_path), [layout_of(tmp_path / name) for name in "ab"]
    folders = {folder_of(purpose, each) for purpose in (TEST, "stock") for each in layouts}
    folders |= {folder_of(TEST, layout_of(tmp_path / "a", "2"))}
    wheels = [fake_wheel(tmp_path / name, f"1+graft.{name}") for name in "ab"]
    with (
        wheel_environment(layouts[0], TEST, wheels[0], needed) as first,
        wheel_environment(layouts[1], TEST, wheels[1], needed) as second,
        unpacked(layouts[0], "stock", wheels[0]) as stock,
    ):
        assert [torch_of(python) for python in (first, second)] == ["1+graft.a", "1+graft.b"]
        assert (stock / "torch/__init__.py").is_file()
    monkeypatch.setattr(sys, "base_prefix", "/another")
    assert len({*folders, folder_of(TEST, layouts[0])}) == 6


def test_environment_has_the_wheel_that_is_tested(tmp_path: Path) -> None:
    """A new wheel is installed over the old one, whatever their versions; for other requirements all is made anew."""
    layout, needed, said = layout_of(tmp_path), requirements(tmp_path), []
    for number, (version, text) in enumerate([("1+a", "one"), ("1+b", "two"), ("1+b", "three"), ("1+b", "three")]):
        if number == 3:
            needed.write_text("# nothing, again\n")
        with wheel_environment(layout, TEST, fake_wheel(tmp_path / str(number), version, text), needed) as python:
            kept = python.parent.parent / "kept"
            assert kept.exists() == (number in (1, 2))
            kept.touch()
            said.append(torch_of(python))
    assert said == ["1+a one", "1+b two", "1+b three", "1+b three"]


def test_packages_of_environments_are_links_and_programs_name_their_python(tmp_path: Path) -> None:
    needed, pythons = requirements(tmp_path), []
    for name in "ab":
        layout = layout_of(tmp_path / name)
        with wheel_environment(layout, TEST, fake_wheel(tmp_path / name, "1"), needed) as python:
            pythons.append(python)
    folders = [python.parent.parent for python in pythons]
    for folder in folders:
        done = subprocess.run([folder / "bin/pip", "--version"], capture_output=True, text=True, check=True)
        assert f"from {folder}/" in done.stdout
    first, second = (next(folder.glob("lib/python*/site-packages")) for folder in folders)
    assert (first / "pip/__init__.py").samefile(second / "pip/__init__.py")
    assert not (first / "torch/__init__.py").samefile(second / "torch/__init__.py")
    assert not (folders[0] / STAMP).samefile(folders[1] / STAMP)


def test_users_of_an_environment_wait_for_each_other(tmp_path: Path) -> None:
    layout = layout_of(tmp_path)

    def test_too() -> None:
        with one_at_a_time(layout, TEST):
            pass

    holding = wheel_environment(layout, TEST, fake_wheel(tmp_path, "1"), requirements(tmp_path))
    with one_at_a_time(layout, TEST), holding as python:
        others = [Thread(target=test_too), Thread(target=partial(environments.discard, layout, [TEST]))]
        for other in others:
            other.start()
            other.join(0.5)
            assert other.is_alive() and python.is_file()
    for other in others:
        other.join()
    assert not python.is_file()


# -- what is reported


PASSES = "def test_first(): pass\n"
FAILS = "def test_first(): assert 1 == 2\ndef test_right(): pass\n"
ONE = r"1 passed, \d+\.\d s\n"


def parts_in(folder: Path, first: str = PASSES) -> list[Suite]:
    """Two parts, each a file of tests."""
    write(folder, {"test_first.py": first, "test_second.py": "def test_second(): pass\n"})
    return [Suite("wheel", f"the {name}", [folder / f"test_{name}.py"]) for name in ("first", "second")]


@pytest.mark.parametrize(
    ("first", "extra", "error", "out", "err"),
    [
        (PASSES, [], "", "", f"test the first: {ONE}test the second: {ONE}all tests passed\n"),
        (
            FAILS,
            [],
            "the first",
            "=.*assert 1 == 2.*FAILED.*",
            f"test the first: 1 failed, {ONE}test the second: {ONE}",
        ),
        ("", [], "the first", ".*no tests ran.*", ".*"),
        ("import os\ndef test_first(): os.abort()\n", [], "the first", ".*Fatal Python error: Aborted.*", ".*"),
        (PASSES, ["-k", "second"], "", ".*", ".*\nno test was selected from the first\nall selected tests passed\n"),
        (PASSES, ["-k", "missing"], "no test ran; `-k missing` selects none", ".*", ".*"),
    ],
)
def test_parts_are_run_and_reported(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], first: str, extra: list[str], error: str, out: str, err: str
) -> None:
    """Each in one line, and what pytest says of failures. A part that ends without a result has failed."""
    run = partial(run_parts, Path(sys.executable), parts_in(tmp_path, first), {}, extra, tmp_path / "results")
    if error:
        with pytest.raises(Failed, match=error if extra else f"tests failed: {error}"):
            run()
    else:
        run()
    said = capfd.readouterr()
    assert re.fullmatch(out, said.out, re.S) and re.fullmatch(err, said.err, re.S), said
    results = {path.name: path.read_text() for path in (tmp_path / "results").iterdir()}
    assert results.keys() == {"1-wheel.xml", "2-wheel.xml"}
    assert (results["1-wheel.xml"] == "") == ("abort" in first)


def test_parts_that_run_whole_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that pass: their preparation, all of them, and their processors' time; and each file."""
    monkeypatch.setattr(seconds, "COSTS", tmp_path / "costs")
    both = parts_in(tmp_path)
    both += [Suite("failing", "failing", [write(tmp_path, {"test_fails.py": FAILS}) / "test_fails.py"])]
    first, _, failing = both
    parts = [replace(first, prepare=lambda: time.sleep(1) or {}), failing]
    for extra in (["-k", "right or first"], []):
        with pytest.raises(Failed):
            run_parts(Path(sys.executable), parts, {}, extra, is_measured=True)
        assert (tmp_path / "costs").exists() == (not extra)
    (costs,) = (tmp_path / "costs").glob("*.json")
    part = json.loads(costs.read_text())
    assert costs.name == "wheel.json" and part["prepare"] >= 1 and part["how"].startswith("JOBS=1 on ")
    (file,) = json.loads((tmp_path / "costs/files/wheel.json").read_text()).values()
    assert file["tests"] >= 1 and 0 <= file["wall"] < part["wall"] + 1


SKIPPING = """
import pytest

@pytest.mark.parametrize("n", ["one", "other"])
def test_first(n): pytest.skip("there is no GPU")

def test_of_machine(): pytest.skip("this processor has no AVX9")
"""
ONE_SKIP, OTHER_SKIP, SECOND = "first: test_first[one]", "first: test_first[other]", "second: test_second"
WHOLE, SKIPPED = ["--all-of-it"], "import pytest\npytest.skip('there is no GPU', allow_module_level=True)\n"


@pytest.mark.parametrize(
    ("expected", "options", "second", "unexpected", "missing"),
    [
        ([ONE_SKIP, OTHER_SKIP], WHOLE, "def test_second(): pass\n", [], []),
        (["first: test_first[*]"], WHOLE, "", [], []),
        ([ONE_SKIP], WHOLE, SKIPPED, [OTHER_SKIP, "test_second"], []),  # of a test, and of a file
        ([ONE_SKIP], [*WHOLE, "--numprocesses=2"], SKIPPED, [OTHER_SKIP, "test_second"], []),
        ([ONE_SKIP, SECOND], ["-k", "one or other"], "", [OTHER_SKIP], []),
        ([ONE_SKIP, OTHER_SKIP, SECOND], WHOLE, "", [], [SECOND]),
    ],
)
def test_run_with_other_skips_fails(
    tmp_path: Path, expected: list[str], options: list[str], second: str, unexpected: list[str], missing: list[str]
) -> None:
    write(tmp_path, {"test_first.py": SKIPPING, "test_second.py": second})
    text = {"pin": "1", "parts": {"wheel": {"there is no GPU": expected}}, "machine": ["^this processor has no "]}
    write(tmp_path, {"skips.yaml": yaml.safe_dump(text)})
    plugin = ["-p", "tests.kit.skips", "--skips-of=wheel", f"--skips-file={tmp_path / 'skips.yaml'}", *options]
    command = [sys.executable, "-m", "pytest", "-q", *plugin, str(tmp_path)]
    done = subprocess.run(command, cwd=common.REPOSITORY, capture_output=True, text=True, check=False)
    said = [f"wheel: skipped, but not in tests/skips.yaml: {each}: there is no GPU" for each in unexpected]
    said += [f"wheel: in tests/skips.yaml, but not skipped: {each}: there is no GPU" for each in missing]
    assert [line for line in done.stdout.splitlines() if line.startswith("wheel: ")] == said
    assert done.returncode == bool(said)


def test_warnings_about_a_fixture_are_not_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    warning, others = (
        f"{tmp_path}/a.yaml:1: warning: odd",
        ["/elsewhere/a.yaml:1: warning: odd", f"{tmp_path}/a.yaml:1: no"],
    )
    with without_warnings_about(tmp_path):
        say(warning)
        say("\n".join([warning, *others]))
    say(warning)
    assert capsys.readouterr().err.splitlines() == [*others, warning]


# -- the chosen parts


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Layout:
    """A folder with a test, whose wheel is built, and an unpacked base; builds are below ``tmp_path``."""
    monkeypatch.setattr(common, "HOME", tmp_path / "build")
    write(tmp_path, {"mine/tests/test_mine.py": "", "bare/tests/data": ""})
    layout = layout_of(tmp_path / "mine")
    wheel = fake_wheel(tmp_path, "1+graft.a")
    save_built(layout, Built("stamp", wheel, fingerprint_of(wheel)))
    fake_wheel(layout.base, "1")
    return layout


@pytest.fixture
def request_for(layout: Layout) -> Request:
    return asked(pin=layout.pin, native=layout.natives, out=layout.out, jobs=1)


@pytest.fixture
def chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the kinds of parts that ``run_tests`` runs, all of which fail."""
    monkeypatch.setattr(testing, "wheel_environment", partial(wheel_environment, requirements=requirements(tmp_path)))
    ran: list[str] = []

    def note(python: Path, parts: list[Suite], *_: object) -> None:
        assert torch_of(python) == "1+graft.a"
        ran.extend(part.kind for part in parts)
        raise Failed("tests failed")

    monkeypatch.setattr(testing, "run_parts", note)
    return ran


def test_parts_are_chosen(layout: Layout, request_for: Request, chosen: list[str]) -> None:
    for parts in (["wheel"], ["operators", "builder"], testing.PARTS):
        with pytest.raises(Failed):
            testing.run_tests(request_for, [], parts)
    assert chosen == ["wheel", "operators", "wheel", "operators"]
    for parts, message in ((["builder"], "has no such tests"), (["wheel", "whale"], "--parts whale: no such tests")):
        with pytest.raises(UsageError, match=message):
            testing.run_tests(request_for, [], parts)
    assert all(folder_of(purpose, layout).is_dir() for purpose in (TEST, "stock"))


def test_environments_are_deleted_also_behind_tests_that_fail(
    tmp_path: Path, request_for: Request, chosen: list[str]
) -> None:
    with pytest.raises(Failed):
        testing.run_tests(request_for, [], is_discarding=True)
    left = list((tmp_path / "environments").iterdir())
    assert left and all(path.suffix in (".lock", ".running") or path.name.startswith("packages-") for path in left)


def test_each_folder_s_own_tests_are_run(tmp_path: Path, layout: Layout) -> None:
    several = Layout(layout.pin, (testing.SHIPPED, tmp_path / "bare", tmp_path / "mine"), tmp_path)
    expected = [[testing.TESTS / "wheel/shipped"], [tmp_path / "mine/tests"]]
    assert [part.paths for part in testing.own_tests(several)] == expected
    assert not testing.is_shipped(several) and testing.is_shipped(layout_of(testing.SHIPPED))
    spaced = Layout(layout.pin, (tmp_path / "with space", tmp_path / "b"), tmp_path)
    assert native_folders(testing.named(spaced)) == spaced.natives


def test_checkout_is_tested_as_the_folder_of_what_it_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is read once; a thin wheel has no whole files. Operators that were left out are an error at the end."""
    write(tmp_path, {"changes/A.cpp": "// TODO: PyTorch's own\n", "mine/B.cpp": "// TODO: mine\n"})
    asked_for, ran = [], []

    def of_checkout(request: Request, *, is_whole: bool) -> Live:
        asked_for.append((request.source, is_whole))
        natives = (tmp_path / "changes", *request.native)
        return Live(
            replace(request, source="", native=natives),
            tmp_path,
            refused={"lerp.Scalar": "a.yaml:1: lerp.Scalar: another schema"},
        )

    monkeypatch.setattr(testing, "of_checkout", of_checkout)
    monkeypatch.setattr(testing, "build", lambda request: ran.append(("build", request.source)))
    monkeypatch.setattr(testing, "run_tests", lambda request, *_: ran.append(("test", request.native)))
    given = Namespace(extra=[], parts=[], junit=None, discard=False)
    request = asked(source="~/pytorch", native=(tmp_path / "mine",))
    for delivery, gaps in (("wheel", "operators"), ("thin-wheel", "operators"), ("wheel", "allow")):
        with (
            nullcontext()
            if gaps == "allow"
            else pytest.raises(RefusedOperatorsError, match=r"a\.yaml:1: lerp\.Scalar: another")
        ):
            testing.test(replace(request, delivery=delivery, gaps=gaps), given)
    assert asked_for == [("~/pytorch", True), ("~/pytorch", False), ("~/pytorch", True)]
    tested = ("test", (tmp_path / "changes", tmp_path / "mine"))
    assert ran == [("build", ""), tested, tested, ("build", ""), tested]
    said = capfd.readouterr().err
    assert "B.cpp:1" in said and "A.cpp" not in said


@pytest.mark.parametrize(
    ("operators", "kinds", "said"),
    [
        (1, ["wheel", "operators"], "tests: wheel, operators; about 4 minutes on 2 cores, and the folder's own"),
        (60, ["wheel"], "tests: wheel; about 11 minutes on 2 cores"),
        (1, ["operators"], "tests: operators"),
    ],
)
def test_time_of_any_folder_s_tests_is_estimated(tmp_path: Path, operators: int, kinds: list[str], said: str) -> None:
    variants = "- func: op_{0}(Tensor self) -> Tensor\n- func: op_{0}_(Tensor(a!) self) -> Tensor(a!)\n"
    write(tmp_path, {"native_functions.yaml": "".join(variants.format(n) for n in range(operators))})
    assert testing._costs(layout_of(tmp_path), [Suite(kind, kind, []) for kind in kinds]) == said
