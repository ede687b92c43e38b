"""The command line, the lock, the native folder and small helpers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from graft import cli
from graft.core.errors import MissingError
from graft.core.layout import REPOSITORY, native_folders
from graft.inputs.native import load_native
from graft.inputs.pin import load_pin
from graft.inputs.toolchain import find_toolchain
from graft.options import Request
from helpers import write

from tests.kit import __main__ as kit

VERBS = (*cli.VERBS, *kit.VERBS)


def graft(*arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "graft", *map(str, arguments)]
    env = {**os.environ, **variables}
    return subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, check=False)


def test_help_names_the_verbs() -> None:
    done = graft("--help")
    assert done.returncode == 0
    for verb in ("build", "develop", "thin-wheel", "check"):
        assert f"    {verb}" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["build", "--native", "/nowhere"], 2, "error: /nowhere: no such folder\n  next: set NATIVE"),
        (["build", "--native", "~nobody it's"], 2, "/~nobody it's: no such folder\n  next: set NATIVE"),
        (["build", "--pin", "0.0.0"], 2, "no such pin\n  next: set PIN to one of: "),
        (
            ["build", "--build", "sources"],
            2,
            "BUILD=sources: no such build: sources\n  next: set it to graft or source",
        ),
        (["build", "--jobs", "0"], 2, "error: --jobs: 0 is not a positive number\n  next: "),
        (["build", "--jobs", "two"], 2, "error: --jobs: two is not a positive number\n  next: "),
        (["build", "--jbos", "2"], 2, "error: unrecognized arguments: --jbos 2\n  next: `make` lists"),
    ],
)
def test_wrong_use_says_what_to_do_without_a_traceback(arguments: list[str], code: int, message: str) -> None:
    done = graft(*arguments)
    assert done.returncode == code
    assert message in done.stderr
    assert "Traceback" not in done.stderr


OWN = Path(__file__)
# Arguments and their error, for each verb that accepts them.
GIVEN = [
    (["build", "thin-wheel", "test", "export"], ["--out", f"{OWN}/dist"], f"OUT={OWN}/dist: {OWN} is a file"),
    (["build", "check", "develop", "surfaces"], ["--native", str(OWN)], f"{OWN}: this is a file\n  next: set NATIVE"),
    (
        ["check", "fuzz", "bench", "test-sanitize"],
        ["--native", "/nowhere"],
        "/nowhere: no such folder\n  next: set NATIVE",
    ),
    (["new"], ["--native", f"{OWN}/ops", "--schema=f() -> ()"], f"NATIVE={OWN}/ops: {OWN} is a file"),
    (["build", "check", "check-cuda"], ["--wheel", "/nope.whl"], "/nope.whl: no such file\n  next: set WHEEL"),
    (["build", "check"], ["--wheel", str(OWN)], f"{OWN}: not the file name of a wheel"),
    (["check"], ["--wheel", f"{OWN.parent}/test_builde?.py"], f"{OWN}: not the file name of a wheel"),
    (
        ["check-source", "apply", "export"],
        ["--source", "/nowhere"],
        "SOURCE=/nowhere: no such folder\n  next: set SOURCE",
    ),
    (["test", "fuzz", "check-source"], ["--pin", "0.0.0"], "no such pin\n  next: set PIN to one of: "),
    (["surfaces"], ["--delivery", "wheel wool"], "DELIVERY=wheel wool: no such delivery: wool\n  next: set it to"),
]


@pytest.mark.parametrize(
    ("verb", "given", "message"), [(verb, given, message) for verbs, given, message in GIVEN for verb in verbs]
)
def test_what_is_given_is_looked_at_first(
    verb: str, given: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli, "import_module", lambda _: pytest.fail("it went on"))
    assert cli.main(VERBS, [verb, *given]) != 0
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variable", "value", "message"),
    [
        (
            "LAUNCHER",
            "no-such-cache --fast",
            "LAUNCHER=no-such-cache --fast: program no-such-cache not found\n  next: ",
        ),
        ("LAUNCHER", "'ccache", "LAUNCHER='ccache: No closing quotation\n  next: close"),
        ("CUDA_ARCHS", "80 hopper", "CUDA_ARCHS=80 hopper: hopper is not a GPU architecture\n  next: "),
    ],
)
def test_variables_are_looked_at_first(
    variable: str, value: str, message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"GRAFT_{variable}", value)
    monkeypatch.setattr(cli, "import_module", lambda _: pytest.fail("it went on"))
    assert cli.main(VERBS, ["build"]) != 0
    assert message in capsys.readouterr().err


def test_all_that_is_wrong_is_named_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(VERBS, ["build", "--native", "/nowhere", "--out", str(OWN), "--wheel", "/nope.whl"]) == 2
    said = capsys.readouterr().err
    assert all(part in said for part in ("/nowhere: no such folder", f"OUT={OWN}", "/nope.whl: no such file"))


def test_what_is_right_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    run = SimpleNamespace(
        **{name: lambda *_, name=name: ran.append(name) for name in ("build", "new_op", "export_fetched")}
    )
    monkeypatch.setattr(cli, "import_module", lambda _: run)
    (tmp_path / "native_functions.yaml").touch()
    for verb, *more in (
        ("build", f"--out={tmp_path}/a/b", "--native", str(tmp_path)),
        ("new", "--schema=f() -> ()", "--native", str(tmp_path / "new")),
        ("export", f"--out={tmp_path}/a/b", "--source", "https://a.b/c", "--native", str(tmp_path)),
    ):
        assert cli.main(VERBS, [verb, "--pin", "2.14.1", *more]) == 0
    assert ran == ["build", "new_op", "export_fetched"]


def test_variables_are_options_and_go_no_further(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    requests: list[Request] = []
    monkeypatch.setattr(cli, "import_module", lambda _: SimpleNamespace(develop=requests.append))
    other = tmp_path / "other"
    other.mkdir()
    for folder in (tmp_path, other):
        (folder / "native_functions.yaml").touch()
    monkeypatch.setenv("GRAFT_NATIVE", f"'{tmp_path}' {other}")
    monkeypatch.setenv("GRAFT_JOBS", "3")
    monkeypatch.setenv("GRAFT_WATCH", "0")
    monkeypatch.setenv("GRAFT_OUT", "")
    monkeypatch.setenv("CXX", "a")
    monkeypatch.setenv("CUDA_HOME", "/cuda")
    assert cli.main(VERBS, ["develop", "--jobs", "5", "--cxx", "b"]) == 0
    (request,) = requests
    assert (request.layout.cxx, request.layout.cuda.home) == ("b", "/cuda")
    # Other programs know these two.
    assert (os.environ["CXX"], os.environ["CUDA_HOME"]) == ("b", "/cuda")
    assert (request.native, request.jobs, request.watch, request.out) == ((tmp_path, other), 5, False, None)
    assert cli.main(VERBS, ["develop", "--watch", "--native", str(tmp_path)]) == 0
    assert requests[-1].watch
    assert not {"GRAFT_NATIVE", "GRAFT_JOBS", "GRAFT_WATCH", "GRAFT_OUT"} & os.environ.keys()


def test_short_names_are_make_s_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """WSL sets NAME, and other programs read JOBS, too."""
    for name in ("JOBS", "NAME", "PIN", "VERSION"):
        monkeypatch.setenv(name, "x y")
    _, request, _ = cli.read(VERBS, ["thin-wheel"])
    assert (request.jobs, request.name, request.pin, request.version) == (os.cpu_count(), "", "", "0.1")
    assert os.environ["NAME"] == "x y"


def test_variables_reach_the_builder_on_another_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli, "_another_python", lambda *_: Path("/other/python"))

    def started(command: str, words: list[str]) -> None:
        raise KeyboardInterrupt(os.environ.get("GRAFT_JOBS"))

    monkeypatch.setattr(cli.os, "execv", started)
    monkeypatch.setenv("GRAFT_JOBS", "3")
    assert cli.main(VERBS, ["develop"]) == 130
    assert os.environ["GRAFT_JOBS"] == "3"


def test_wrong_variable_is_named_as_it_was_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRAFT_JOBS", "many")
    assert cli.main(VERBS, ["check"]) == 2
    assert "error: JOBS: many is not a positive number\n" in capsys.readouterr().err


def test_relative_path_is_refused_if_make_changed_the_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The builder's own folder `native` could be meant, or the user's."""
    monkeypatch.setenv("MAKELEVEL", "1")
    monkeypatch.setenv("GRAFT_NATIVE", "native")
    monkeypatch.setattr(cli, "command_of_make", lambda: ["make", "-C", "/elsewhere", "check"])
    assert cli.main(VERBS, ["check"]) == 2
    assert "error: NATIVE=native: `make -C` is run in another folder than yours\n" in capsys.readouterr().err
    for command, native in (("make", "native"), ("make -C /elsewhere", str(tmp_path)), ("make -C /elsewhere", "")):
        monkeypatch.setattr(cli, "command_of_make", command.split)
        monkeypatch.setenv("GRAFT_NATIVE", native)
        cli.main(VERBS, ["check", "--jobs", "many"])
        assert "make -C" not in capsys.readouterr().err


def fake_compiler(folder: Path, version: str, about: str) -> str:
    path = folder / "cxx"
    path.write_text(f'#!/bin/sh\ncase "$1" in -dump*) echo {version};; *) echo "{about}";; esac\n')
    path.chmod(0o755)
    return str(path)


@pytest.mark.parametrize(
    ("version", "about", "message"),
    [
        ("9.4.0", "g++ 9.4.0", r"is g\+\+ 9\.4\.0, which is too old"),
        ("17.0.0", "clang version 17", r"is not g\+\+ but clang"),
    ],
)
def test_compiler_that_will_not_do_is_refused(tmp_path: Path, version: str, about: str, message: str) -> None:
    with pytest.raises(MissingError, match=message):
        find_toolchain(load_pin(REPOSITORY / "patches/2.13.0"), fake_compiler(tmp_path, version, about))


def test_missing_compiler_is_refused() -> None:
    with pytest.raises(MissingError, match="`no-such-compiler` does not run"):
        find_toolchain(load_pin(REPOSITORY / "patches/2.13.0"), "no-such-compiler")


HOLD = "from pathlib import Path\nfrom graft.core.files import build_lock\n" + (
    "with build_lock(Path({folder!r})):\n    {body}\n"
)


def holding(folder: Path, body: str) -> subprocess.Popen[str]:
    """A process that holds the lock while it runs ``body``."""
    command = [sys.executable, "-c", HOLD.format(folder=str(folder), body=body)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=REPOSITORY, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def test_second_build_waits_for_the_first_and_says_so(tmp_path: Path) -> None:
    first = holding(tmp_path, "print('held', flush=True); import time; input(); print(time.time())")
    assert first.stdout and first.stdout.readline() == "held\n"
    second = holding(tmp_path, "import time; print(time.time())")
    assert second.stderr
    said = second.stderr.readline()
    end_of_first, _ = first.communicate("\n")
    end_of_second, _ = second.communicate()
    assert f"another build is running here (process {first.pid}); waiting" in said
    assert float(end_of_second) >= float(end_of_first)


def test_lock_of_a_killed_build_is_free(tmp_path: Path) -> None:
    body = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", HOLD.format(folder=str(tmp_path), body=body)], cwd=REPOSITORY, check=False)
    after = [sys.executable, "-c", HOLD.format(folder=str(tmp_path), body="print('mine')")]
    done = subprocess.run(after, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=60)
    assert (done.stdout, done.stderr) == ("mine\n", "")


def native_folder(folder: Path) -> Path:
    names = ("A.cpp", "A.h", "cpu/AKernel.cpp", "cuda/A.cu", "cuda/Helper.cpp", "quantized/cpu/kernels/Q.cpp")
    files = dict.fromkeys((*names, ".A.cpp.swp", "tests/program.cpp"), "REGISTER_DISPATCH(a_stub, &a_kernel)\n")
    return write(folder, {**files, "native_functions.yaml": "- func: a(Tensor self) -> Tensor\n"})


def test_files_of_a_native_folder_are_told_apart(tmp_path: Path) -> None:
    native = load_native(native_folder(tmp_path))
    assert native.sources == [Path("A.cpp")]
    assert native.vectorized == [Path("cpu/AKernel.cpp"), Path("quantized/cpu/kernels/Q.cpp")]
    assert native.headers == [Path("A.h")]
    assert native.cuda == [Path("cuda/A.cu"), Path("cuda/Helper.cpp")]


def test_native_names_one_folder_or_several(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("a", "b", "with space", "home/x", "it's"):
        (tmp_path / name).mkdir(parents=True)

    def names(text: str) -> list[str]:
        folders = native_folders(text)
        assert all(folder.is_absolute() for folder in folders)
        return [str(folder.relative_to(tmp_path)) for folder in folders]

    assert names("a") == ["a"]
    assert names("a b") == ["a", "b"]
    assert names("with space") == ["with space"]
    assert names("'with space' ~/x ./b/../a") == ["with space", "home/x", "a"]
    assert names("with\\ space a") == ["with space", "a"]
    assert names("it's") == ["it's"]
    # A missing folder is named as the user wrote it.
    assert names("'with space' ~x") == ["with space", "~x"]
    assert names("it's here") == ["it's here"]
    assert names("new space") == ["new space"]
    assert names(f"new {tmp_path}/b") == ["new", "b"]
    assert names("") == ["."]
