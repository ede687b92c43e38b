"""``make wheels`` and ``make test-matrix``: which Pythons and pins, the states of rows, what is stored and shown.

The Pythons are shell scripts, whose builds take no time.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile

import pytest
from graft.core.errors import UsageError
from graft.core.layout import REPOSITORY
from graft.core.pythons import find_pythons
from graft.wheels import error_of
from helpers import interruptible

from tests.kit import matrix
from tests.kit.matrix import contents, counted

# Replaces the builder: records its arguments, writes a wheel and pytest's results. FAKE lists what fails.
BUILDER = """
import json, os, pathlib, sys, time, zipfile
release, _, module, verb, *arguments = sys.argv[1:]
folder, fake = pathlib.Path(os.environ["FAKES"]), json.loads(os.environ["FAKE"])
def option(name):
    return arguments[arguments.index(name) + 1]
pin, tag = option("--pin"), "cp" + release.replace(".", "")
with (folder / "calls").open("a") as calls:
    calls.write(json.dumps([verb, pin, release, arguments, os.environ.get("PYTHONUTF8")]) + chr(10))
def wheel(path, files):
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in {"torch/version.py": "cuda: str | None = None", **files}.items():
            archive.writestr(name, text)
print(verb, "begins", flush=True)
if fake.get("together"):
    (folder / ("is-there-" + release)).touch()
    while len(list(folder.glob("is-there-*"))) < 2:
        time.sleep(0.01)
while fake.get("hang") == verb:
    time.sleep(0.01)
if verb == "build":
    if pin in fake.get("fails", []):
        print("error: no such compiler" + chr(10) + "  next: install one")
        sys.exit(9)
    wheel(pathlib.Path("build", pin, tag, "base", f"torch-{pin}-{tag}.whl"), {"torch/a": "a"})
    made = pathlib.Path(option("--out"), f"torch-{pin}+graft.{fake.get('stamp', '1')}-{tag}.whl")
    seconds = {} if made.exists() else {"compile": 1.5}
    wheel(made, {"torch/a": "a", "torch/b": "b" * 10_000_000})
    pathlib.Path(option("--report")).write_text(json.dumps({"path": str(made), "seconds": seconds}))
else:
    for number, kind in enumerate(["wheel", "operators"], 1):
        failed = int(pin in fake.get("failing tests", []))
        pathlib.Path(option("--junit"), f"{number}-{kind}.xml").write_text(
            f'<testsuites><testsuite errors="0" failures="{failed}" skipped="2" tests="9" time="{number}.25"/>'
            "</testsuites>"
        )
    if failed:
        sys.exit("error: tests failed: the wheel")
"""


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def fake_python(path: Path, version: str, flags: str = "") -> Path:
    """A Python that reports this version, and builds with ``BUILDER``."""
    words = " ".join(version.split("."))
    release = version.rpartition(".")[0]
    probe = f'if [ "$1" = -c ]; then echo {words} cpython flags{flags}; exit; fi\n'
    builder = path.parent / "builder.py"
    write_program(path, f'{probe}exec {sys.executable} {builder} {release} "$@"')
    builder.write_text(BUILDER)
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home without Pythons, and a PATH with only those in bin/."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("PYENV_ROOT", raising=False)
    return tmp_path


@pytest.fixture
def repository(home: Path) -> Path:
    """A copy of this repository, with the Pythons 3.10 to 3.14."""
    folder = home / "repository"
    for name in ("scripts", "patches", "tests/kit"):
        shutil.copytree(REPOSITORY / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(REPOSITORY / "noxfile.py", folder)
    # The fakes need no space, and this machine may have less than a row does.
    kit = folder / "tests/kit/matrix.py"
    kit.write_text(re.sub("(?m)^_NEEDED_BYTES = .*", "_NEEDED_BYTES = 0", kit.read_text(encoding="utf-8")))
    (folder / "native").mkdir()
    (folder / "native/native_functions.yaml").touch()
    for minor in range(10, 15):
        fake_python(home / f"bin/python3.{minor}", f"3.{minor}.1")
    return folder


def start(
    repository: Path, *arguments: str, variables: Mapping[str, str] = {}, **fake: object
) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(repository / "scripts"), "FAKES": str(repository), "FAKE": json.dumps(fake)}
    command = [sys.executable, "-m", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command,
        cwd=repository,
        env={**env, **variables},
        stdout=pipe,
        stderr=pipe,
        text=True,
        preexec_fn=interruptible,
        start_new_session=True,
    )


def run(
    repository: Path, *arguments: str, variables: Mapping[str, str] = {}, **fake: object
) -> subprocess.CompletedProcess[str]:
    process = start(repository, *arguments, variables=variables, **fake)
    out, errors = process.communicate(timeout=120)
    return subprocess.CompletedProcess(arguments, process.returncode, out, errors)


def run_matrix(
    repository: Path, *arguments: str, pins: str = "2.14.1", pythons: str = "3.11", at_once: str = "1", **fake: object
) -> subprocess.CompletedProcess[str]:
    """Run the recipe of ``make test-matrix``."""
    variables = {"PINS": pins, "PYTHONS": pythons, "AT_ONCE": at_once, "JOBS": "6"}
    return run(repository, "nox", "-s", "matrix", "-j", at_once, "--", *arguments, variables=variables, **fake)


def calls(repository: Path) -> list[list[Any]]:
    """Return the arguments of the fake builders since the last call."""
    path = repository / "calls"
    lines = path.read_text().splitlines() if path.exists() else []
    path.unlink(missing_ok=True)
    return [json.loads(line) for line in lines]


def rows(repository: Path) -> dict[tuple[str, str], dict[str, Any]]:
    found = [json.loads(path.read_text()) for path in (repository / "build/test-matrix").glob("*/*.json")]
    return {(row["pin"], row["python"]): row for row in found}


def command_lines() -> list[bytes]:
    """The environment of each process."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            lines.append(path.read_bytes())
    return lines


# -- Pythons


def test_version_is_found_behind_a_shim_that_does_not_run(home: Path) -> None:
    write_program(home / "bin/python3.12", "echo 'pyenv: python3.12: command not found' >&2; exit 127")
    for version in ("3.12.9", "3.12.10", "3.1.2"):
        fake_python(home / f".pyenv/versions/{version}/bin/python3.12", version)
    (python,) = find_pythons(["3.12"])
    assert python.path == home / ".pyenv/versions/3.12.10/bin/python3.12"
    assert (python.release, python.tag, python.interpreter) == ("3.12", "cp312-cp312", "cp312")
    (exact,) = find_pythons(["3.12.9"])
    assert exact.path == home / ".pyenv/versions/3.12.9/bin/python3.12"


def test_python_on_the_path_comes_first_and_need_not_be_in_its_first_folder(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(home / "bin/python3.12", "exit 127")
    monkeypatch.setenv("PATH", f"{home / 'bin'}{os.pathsep}{home / 'other'}")
    fake_python(home / ".pyenv/versions/3.12.9/bin/python3.12", "3.12.9")
    second = fake_python(home / "other/python3.12", "3.12.0")
    assert [python.path for python in find_pythons(["3.12"])] == [second]


@pytest.mark.parametrize(
    "place", [".local/share/uv/python/cpython-3.12.1-linux/bin", "miniforge3/bin", "miniconda3/envs/mine/bin"]
)
def test_pythons_of_uv_and_conda(home: Path, place: str) -> None:
    path = fake_python(home / place / "python3.12", "3.12.1")
    assert [python.path for python in find_pythons(["3.12"])] == [path]


def test_python_may_be_a_name_or_a_path_and_counts_once(home: Path) -> None:
    first = fake_python(home / "bin/python3.12", "3.12.1")
    path = fake_python(home / "with space/python", "3.13.0")
    threaded = fake_python(home / "bin/python3.13t", "3.13.0", "t")
    found = find_pythons(["python3.12", "3.12", str(path), "python3.13t"])
    assert [python.path for python in found] == [first, path, threaded]
    assert [python.release for python in found] == ["3.12", "3.13", "3.13t"]
    assert found[2].tag == "cp313-cp313t"


def test_all_pythons_that_are_missing_are_named(home: Path) -> None:
    fake_python(home / "bin/python3.12", "3.12.1")
    write_program(home / "bin/python3.10", "exit 127")
    with pytest.raises(UsageError, match=r"does not run: 3\.10, python9, /no/python, 3\.12\.7\n"):
        find_pythons(["3.12", "3.10", "python9", "/no/python", "3.12.7"])


# -- make wheels


def test_wheels_of_each_pin_on_each_python(repository: Path, tmp_path: Path) -> None:
    done = run(
        repository,
        *("graft", "wheels", "--pins", "2.14.1 2.15.0", "--pythons", "3.11 3.14", "--out", str(tmp_path / "out")),
        *("--launcher", sys.executable, "--cuda-archs", "80"),
    )
    assert done.returncode == 0, done.stderr
    made = calls(repository)
    assert [call[:3] for call in made] == [
        ["build", pin, python] for python in ("3.11", "3.14") for pin in ("2.14.1", "2.15.0")
    ]
    assert all(call[4] == "1" and str(repository / "native") in call[3] for call in made)
    assert all({"--launcher", sys.executable, "--cuda-archs", "80"} < set(call[3]) for call in made)
    assert len(list((tmp_path / "out").glob("*.whl"))) == 4
    assert "2.15.0  3.14    torch-2.15.0+graft.1-cp314.whl  10 MB" in done.stdout
    assert done.stderr.count("build begins") == 4


def test_wheel_that_fails_does_not_stop_the_others(repository: Path) -> None:
    done = run(repository, "graft", "wheels", "--pins", "2.14.1 2.15.0", "--pythons", "3.11", fails=["2.14.1"])
    assert done.returncode == 1
    assert "2.14.1  3.11    failed                                 no such compiler\n" in done.stdout
    assert "2.15.0  3.11    torch-2.15.0+graft.1-cp311.whl" in done.stdout
    assert "error: 1 of 2 wheels could not be built" in done.stderr


def test_default_is_every_pin_that_the_python_has_a_wheel_of(repository: Path) -> None:
    done = run(repository, "graft", "wheels", "--pythons", "3.10")
    assert done.returncode == 0, done.stderr
    assert {call[1] for call in calls(repository)} >= {"2.11.0", "2.12.1", "2.13.0", "2.14.1"}
    (line,) = (line for line in done.stderr.splitlines() if line.startswith("left out"))
    assert "torch 2.13.0+cpu on Python 3.10" in line and "torch 2.15.0 on Python 3.10" in line and "2.6.0" not in line


@pytest.mark.parametrize(
    ("verb", "pins", "pythons", "code", "message"),
    [
        ("wheels", "2.14.1 2.13.0+cpu", "3.11 3.12", 1, "no pin has a wheel of torch 2.13.0+cpu on Python 3.12\n"),
        ("wheels", "9.9.9 8.8.8", "3.11", 1, "patches/8.8.8/pin.yaml: no such pin"),
        ("wheels", "2.6.0", "3.11", 1, "this pin has no wheel"),
        ("wheels", "2.14.1", "3.11 3.7 3.8", 2, "does not run: 3.7, 3.8\n"),
        ("wheels", "2.14.1", "'3.11", 2, "PYTHONS='3.11: No closing quotation"),
    ],
)
def test_what_cannot_be_built_is_said_before_anything_is(
    repository: Path, verb: str, pins: str, pythons: str, code: int, message: str
) -> None:
    done = run(repository, "graft", verb, "--pins", pins, "--pythons", pythons)
    assert done.returncode == code
    assert message in done.stderr and "Traceback" not in done.stderr
    assert calls(repository) == []


def test_base_of_one_wheel_is_refused(repository: Path) -> None:
    done = run(repository, "graft", "wheels", "--wheel", "torch.whl", "--pythons", "3.11")
    assert done.returncode == 2 and "each pin and Python has its own base wheel" in done.stderr


def test_error_of_a_command_is_its_last_one() -> None:
    assert error_of(0, ["error: not counted\n"]) == ""
    assert error_of(6, ["a.cpp:1: error: x\n", "error: first\n", "error: 2 files\n", "  next: y\n"]) == "2 files"
    assert error_of(1, ["Traceback\n", "ValueError: x\n", "\n"]) == "ValueError: x"
    assert error_of(-9, []) == "exit code -9"


# -- make test-matrix


def test_matrix_of_its_own(repository: Path) -> None:
    done = run_matrix(repository, "--markdown", "table.md", pins="", pythons="")
    assert done.returncode == 0, done.stderr
    expected = {(pin, "3.11") for pin in ("2.11.0", "2.12.1", "2.13.0+cpu", "2.13.0", "2.14.1", "2.15.0")}
    expected |= {("2.14.1", python) for python in ("3.10", "3.12", "3.13")}
    assert set(rows(repository)) == expected
    row = rows(repository)["2.14.1", "3.12"]
    assert row["wheel"] == "torch-2.14.1+graft.1-cp312.whl" and row["added"] == 10_000_000 and row["build"] > 0
    assert row["tests"] == {"operators": "7 passed, 2 skipped, 2 s", "wheel": "7 passed, 2 skipped, 1 s"}
    table = (repository / "table.md").read_text()
    assert table == (repository / "build/test-matrix.md").read_text()
    assert f"{row['machine']}; {row['date']}:\n\n| PyTorch " in table
    assert table.index("| 2.14.1     | 3.13") < table.index("| 2.15.0     | 3.11")
    assert "7 passed, 2 skipped, 2 s | 7 passed, 2 skipped, 1 s |" in table
    logs = list((repository / "build/test-matrix").glob("*/2.14.1-3.12.log"))
    assert [log.read_text() for log in logs] == ["build begins\ntest begins\n"]
    assert "begins" not in done.stderr + done.stdout


def test_environments_are_deleted_unless_they_are_kept_and_pytest_gets_its_arguments(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_matrix(repository)
    _, (_, _, _, tested, _) = calls(repository)
    assert "--discard" in tested and "--" not in tested
    assert tested[tested.index("--parts") :][:3] == ["--parts", "operators", "wheel"]
    monkeypatch.setenv("KEEP", "1")
    run_matrix(repository, "--", "-k", "one or two")
    _, (_, _, _, tested, _) = calls(repository)
    assert "--discard" not in tested and tested[-3:] == ["--", "-k", "one or two"]
    table = (repository / "build/test-matrix.md").read_text()
    assert table.endswith(" |\n\n2.14.1 on Python 3.11: only `pytest -k 'one or two'`\n")


def test_row_that_passed_is_not_tested_again(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def verbs(*arguments: str, **fake: object) -> list[str]:
        run_matrix(repository, *arguments, pins="2.14.1 2.15.0", **fake)
        return [f"{verb} {pin}" for verb, pin, *_ in calls(repository)]

    both = ["build 2.14.1", "test 2.14.1", "build 2.15.0", "test 2.15.0"]
    assert verbs(**{"failing tests": ["2.15.0"]}) == both
    seconds = rows(repository)["2.15.0", "3.11"]["build"]
    assert verbs() == ["build 2.14.1", "build 2.15.0", "test 2.15.0"]
    assert rows(repository)["2.15.0", "3.11"]["build"] == seconds  # it was there; that took no time
    assert verbs() == ["build 2.14.1", "build 2.15.0"]
    assert verbs("--again") == both
    assert verbs(stamp="2") == both
    assert verbs("--", "-k", "x", stamp="2") == both
    monkeypatch.setenv("NATIVE", str(repository / "patches"))
    assert verbs(stamp="2") == both
    assert len(list((repository / "build/test-matrix").glob("*/2.14.1-3.11.json"))) == 2


def test_rows_that_fail(repository: Path) -> None:
    done = run_matrix(repository, pins="2.12.1 2.14.1 2.15.0", fails=["2.12.1"], **{"failing tests": ["2.14.1"]})
    assert done.returncode == 1
    assert "* matrix(torch 2.12.1 on Python 3.11): aborted" in done.stderr
    assert "* matrix(torch 2.15.0 on Python 3.11): success" in done.stderr
    found = rows(repository)
    assert found["2.12.1", "3.11"]["error"] == "no such compiler"
    assert found["2.14.1", "3.11"]["error"] == "tests failed: the wheel"
    assert found["2.14.1", "3.11"]["tests"]["wheel"] == "1 failed, 6 passed, 2 skipped, 1 s"
    assert found["2.15.0", "3.11"]["error"] == ""
    assert "2.12.1 on Python 3.11: no such compiler\n" in (repository / "build/test-matrix.md").read_text()


def test_rows_that_there_are_not(repository: Path) -> None:
    done = run_matrix(repository, pythons="3.11 3.7 3.8")
    assert done.returncode == 1 and "does not run: 3.7, 3.8" in done.stderr and calls(repository) == []


def test_two_rows_at_once(repository: Path) -> None:
    done = run_matrix(repository, pythons="3.11 3.12", at_once="2", together=True)
    assert done.returncode == 0, done.stdout
    assert {call[3][call[3].index("--jobs") + 1] for call in calls(repository)} == {"3"}


def test_interrupted_matrix_ends_its_rows_and_goes_on_later(repository: Path) -> None:
    run_matrix(repository)
    variables = {"PINS": "2.14.1", "PYTHONS": "3.11 3.12"}
    process = start(repository, "nox", "-s", "matrix", variables=variables, hang="test")
    while not [log for log in (repository / "build").rglob("2.14.1-3.12.log") if "test begins" in log.read_text()]:
        assert process.poll() is None
        time.sleep(0.05)
    assert [line for line in command_lines() if os.fsencode(repository) in line]
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    process.communicate(timeout=60)
    assert process.returncode == 130
    assert not [line for line in command_lines() if os.fsencode(repository) in line]  # nor the test that never ends
    assert set(rows(repository)) == {("2.14.1", "3.11")}
    calls(repository)
    assert run_matrix(repository, pythons="3.11 3.12").returncode == 0
    assert [(call[0], call[2]) for call in calls(repository)] == [
        ("build", "3.11"),
        ("build", "3.12"),
        ("test", "3.12"),
    ]


def test_matrix_needs_space(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_python(home / "bin/python3.11", "3.11.1")
    for name, value in (("PINS", "2.14.1"), ("PYTHONS", "3.11"), ("NATIVE", str(tmp_path))):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(matrix, "free_bytes", lambda _: 10 << 30)
    monkeypatch.setattr(matrix, "TABLE", tmp_path / "table.md")
    (row,) = matrix.rows().values()
    result, _ = matrix.test_row(row, [])
    assert result.error == "10 GiB are free, but a row may need 15"


def test_counts_of_pytest(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import pytest\n"
        "def test_a(): pass\ndef test_b(): pass\ndef test_c(): assert 0\ndef test_d(): pytest.skip('x')\n"
        "@pytest.fixture\ndef broken(): assert 0\ndef test_e(broken): pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path / "test_it.py")]
    for name in ("1-wheel", "2-operators", "3-operators"):
        subprocess.run([*command, f"--junit-xml={tmp_path / name}.xml"], check=False, capture_output=True, cwd=tmp_path)
    (tmp_path / "4-grammar.xml").write_text("<testsuites><testsu")
    (tmp_path / "5-operators.xml").write_text("")
    found = {kind: re.sub(r"\d+ s$", "n s", text) for kind, text in counted(tmp_path).items()}
    assert found == {
        "wheel": "2 failed, 2 passed, 1 skipped, n s",
        "operators": "crashed; 4 failed, 4 passed, 2 skipped, n s",
        "grammar": "crashed; 0 passed, n s",
    }


# -- contents


def test_contents_of_a_wheel_beside_its_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def wheel(name: str, version: str, cuda: str, files: dict[str, bytes]) -> Path:
        with ZipFile(tmp_path / name, "w", ZIP_DEFLATED) as archive:
            archive.writestr("torch/version.py", f"cuda: Optional[str] = {cuda}\nhip: Optional[str] = None\n")
            archive.writestr(f"torch-{version}.dist-info/METADATA", f"{version}" * 1000)
            for member, content in files.items():
                archive.writestr(member, content)
        return tmp_path / name

    same = {"torch/same": b"s" * 5000, "torch/other": b"o" * 5000}
    base = wheel("base.whl", "1", "'13.0'", same)
    monkeypatch.setenv("CUDA_ARCHS", "80 90a")
    changed, added = os.urandom(5000), b"kernels"
    files = {**same, "torch/other": changed, "torch/lib/libtorch_operators_cuda.so": added}
    new = wheel("new.whl", "1+graft", "'13.0'", files)
    found = contents(new, base)
    assert (found["size"], found["cuda"], found["architectures"]) == (new.stat().st_size, "13.0", "sm_80 sm_90a")
    with ZipFile(new) as archive:
        sizes = [archive.getinfo(name).compress_size for name in files if name != "torch/same"]
    assert found["added"] == sum(sizes) > 5000
    cpu = contents(wheel("cpu.whl", "1", "None", {**same, "torch/other": changed}), base)
    assert (cpu["cuda"], cpu["architectures"]) == ("", "")


# -- the Makefile


def test_makefile_hands_on_what_it_is_given(tmp_path: Path) -> None:
    python = write_program(tmp_path / "python", 'printf "%s|" "$@"; echo "$PINS|$PYTHONS|$JOBS|$KEEP"')
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "PY", "PINS"))}
    given = ["PINS=2.14.1 2.15.0", "PYTHONS='/with space/python' 3.12", "ARGS=-v", "AT_ONCE=2", "KEEP=1"]

    def told(verb: str) -> str:
        command = ["make", verb, f"PYTHON={python}", "JOBS=3", *given]
        return subprocess.run(
            command, cwd=REPOSITORY, env=variables, capture_output=True, text=True, check=True
        ).stdout.splitlines()[0]

    assert told("wheels").endswith("|graft|wheels|-v|2.14.1 2.15.0|'/with space/python' 3.12|3|1")
    matrix_of = "|nox|-s|matrix|-j|2|--|-v|2.14.1 2.15.0|'/with space/python' 3.12|3|1"
    assert told("test-matrix").endswith(matrix_of)
