"""The command line: options, variables, and what is checked before a verb runs."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from graft import cli, verbs
from graft.core.layout import REPOSITORY, native_folders
from graft.options import Request
from helpers import Capture, Patch, beside, write

from tests.kit import __main__ as kit

VERBS = (*cli.VERBS, *kit.VERBS)


def test_mistake_has_an_exit_code_and_no_traceback() -> None:
    command = [sys.executable, "-m", "graft", "build", "--jobs", "0"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: --jobs: 0 is not a positive number\n  next: `make` lists the variables")
    assert len(done.stderr.splitlines()) == 2


OWN = Path(__file__)


@pytest.mark.parametrize(
    ("verb", "given", "code", "message"),
    [(verb, *rest) for verbs, *rest in beside(__file__)["mistakes"] for verb in verbs.split()],
)
def test_what_is_given_is_looked_at_first(
    verb: str, given: str, code: int, message: str, capsys: Capture, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(cli, "import_module", lambda _: pytest.fail("it went on"))
    words = given.format(own=OWN, folder=OWN.parent)
    assert cli.main(VERBS, [verb, *shlex.split(words)]) == code
    assert message.format(own=OWN) in capsys.readouterr().err


@pytest.mark.parametrize("code", [[], ["unused-source"]])
def test_codes_are_explained_without_a_folder(code: list[str], capsys: Capture, monkeypatch: Patch) -> None:
    monkeypatch.setattr(cli, "request_of", lambda *_: pytest.fail("it went on"))
    with pytest.raises(SystemExit, match=r"^0$"):
        cli.main(VERBS, ["check", "--native", "/nowhere", "--explain", *code])
    said = capsys.readouterr().out
    assert re.search("^unused-source:? +No entry and no other file uses what a source defines.$", said, re.M)
    assert ("\n+- func: my_op(Tensor self) -> Tensor\n" in said) == bool(code)
    assert len(re.findall("^[a-z0-9-]+  +", said, re.M)) == (0 if code else said.count("\n"))


def test_all_that_is_wrong_is_named_at_once(capsys: Capture) -> None:
    assert cli.main(VERBS, ["build", "--native", "/nowhere", "--out", str(OWN), "--wheel", "/nope.whl"]) == 2
    said = capsys.readouterr().err
    assert all(part in said for part in ("/nowhere: no such folder", f"OUT={OWN}", "/nope.whl: no such file"))


def test_what_is_right_goes_on(tmp_path: Path, monkeypatch: Patch) -> None:
    ran: list[str] = []
    names = ("build", "new_op", "export_fetched")
    run = SimpleNamespace(**{name: lambda *_, name=name: ran.append(name) for name in names})
    monkeypatch.setattr(cli, "import_module", lambda _: run)
    (tmp_path / "native_functions.yaml").touch()
    for verb, *more in (
        ("build", f"--out={tmp_path}/a/b", "--native", str(tmp_path)),
        ("new", "--schema=f() -> ()", "--native", str(tmp_path / "new")),
        ("export", f"--out={tmp_path}/a/b", "--source", "https://a.b/c", "--native", str(tmp_path)),
    ):
        assert cli.main(VERBS, [verb, "--pin", "2.14.1", *more]) == 0
    assert ran == ["build", "new_op", "export_fetched"]


def test_variables_are_options_and_go_no_further(tmp_path: Path, monkeypatch: Patch) -> None:
    requests: list[Request] = []
    monkeypatch.setattr(
        cli, "import_module", lambda _: SimpleNamespace(develop=lambda request, _: requests.append(request))
    )
    other = write(tmp_path, {"native_functions.yaml": "", "other/native_functions.yaml": ""}) / "other"
    ours = {"GRAFT_NATIVE": f"'{tmp_path}' {other}", "GRAFT_JOBS": "3", "GRAFT_WATCH": "0", "GRAFT_OUT": ""}
    for name, value in {**ours, "CXX": "a", "CUDA_HOME": "/cuda"}.items():
        monkeypatch.setenv(name, value)
    assert cli.main(VERBS, ["develop", "--jobs", "5", "--cxx", "b"]) == 0
    (request,) = requests
    assert (request.layout.cxx, request.layout.cuda.home) == ("b", "/cuda")
    # Other programs know these two.
    assert (os.environ["CXX"], os.environ["CUDA_HOME"]) == ("b", "/cuda")
    assert (request.native, request.jobs, request.watch, request.out) == ((tmp_path, other), 5, False, None)
    assert cli.main(VERBS, ["develop", "--watch", "--native", str(tmp_path)]) == 0
    assert requests[-1].watch
    assert not ours.keys() & os.environ.keys()


def test_checkout_stands_for_the_native_folder_unless_one_is_given(tmp_path: Path, monkeypatch: Patch) -> None:
    files = "native/cpu/A.cpp native/cpu/B.cpp"
    for name, value in {"GRAFT_SOURCE": str(tmp_path), "GRAFT_FILES": files, "GRAFT_GAPS": "error"}.items():
        monkeypatch.setenv(name, value)
    for verb in ("build", "develop", "thin-wheel", "check", "test", "bench"):
        _, request, _ = cli.read(VERBS, [verb, "--gaps", "allow"])
        assert (request.native, request.source, request.files) == ((), str(tmp_path), files)
        assert request.gaps == "allow"
        _, request, _ = cli.read(VERBS, [verb, "--native", str(tmp_path)])
        assert request.native == (tmp_path,) and request.gaps == "error"
    default = cli.read(VERBS, ["build", "--source", ""])[1].native
    for words in (["build", "--build", "source"], ["test", "--build", "source"], ["check-source"], ["apply"]):
        assert cli.read(VERBS, words)[1].native == default != ()


@pytest.mark.parametrize(
    ("words", "variables", "expected"),
    [
        ("", {}, "operators"),
        ("", {"GRAFT_STRICT": "1"}, "error"),
        ("", {"GRAFT_STRICT": "0", "GRAFT_KEEP_GOING": "1"}, "allow"),
        ("", {"GRAFT_KEEP_GOING": "1", "GRAFT_STRICT": "1"}, "error"),
        ("", {"GRAFT_KEEP_GOING": "1", "GRAFT_GAPS": "operators"}, "operators"),
        ("--keep-going", {"GRAFT_STRICT": "1", "GRAFT_GAPS": "error"}, "allow"),
        ("--strict --keep-going 0", {}, "error"),
        ("--strict --gaps allow", {}, "allow"),
    ],
)
def test_old_switches_stand_for_values_of_gaps(
    words: str, variables: dict[str, str], expected: str, monkeypatch: Patch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert cli.read(VERBS, ["build", *words.split()])[1].gaps == expected


@pytest.mark.parametrize(
    ("words", "variables", "expected"),
    [
        ("", {"MAX_JOBS": "3"}, 3),
        ("", {"MAX_JOBS": "3", "GRAFT_JOBS": "4"}, 4),
        ("--jobs 5", {"MAX_JOBS": "3", "GRAFT_JOBS": "4"}, 5),
        ("", {"MAX_JOBS": ""}, os.cpu_count()),
    ],
)
def test_other_name_of_jobs(words: str, variables: dict[str, str], expected: int, monkeypatch: Patch) -> None:
    monkeypatch.delenv("MAX_JOBS", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    _, request, given = cli.read(VERBS, ["build", *words.split()])
    assert request.jobs == expected
    cli._keep_from_others(given)
    assert os.environ.get("MAX_JOBS") == variables.get("MAX_JOBS") and "GRAFT_JOBS" not in os.environ


def test_wrong_value_of_an_alias_names_the_alias(capsys: Capture, monkeypatch: Patch) -> None:
    monkeypatch.setenv("MAX_JOBS", "many")
    assert cli.main(VERBS, ["check"]) == 2
    assert "error: MAX_JOBS: many is not a positive number\n" in capsys.readouterr().err


def test_several_versions(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    """Each is checked before the first is built. PINS is an alias."""
    requests: list[Request] = []
    monkeypatch.setattr(cli, "import_module", lambda _: SimpleNamespace(thin_wheel=requests.append))
    write(tmp_path, {"native_functions.yaml": ""})
    words = ["thin-wheel", "--native", str(tmp_path)]
    for flag in ("--pin", "--pins"):
        assert cli.main(VERBS, [*words, flag, "2.14.1 2.15.0 2.14.1"]) == 0
        assert requests.pop().pins == ("2.14.1", "2.15.0")
    monkeypatch.setenv("GRAFT_PINS", "2.14.1 2.15.0")
    assert cli.main(VERBS, words) == 0
    assert requests.pop().pins == ("2.14.1", "2.15.0")
    assert cli.main(VERBS, [*words, "--pin", "2.14.1 0.0.0 0.0.1"]) == 2
    said = capsys.readouterr().err
    assert "0.0.0/pin.yaml: no such pin" in said and "0.0.1/pin.yaml: no such pin" in said and not requests


@pytest.mark.parametrize(
    ("words", "given"),
    [
        ("check --source", ["--build", "source"]),
        ("check --source --syntax --pin 2.6.0", ["--build", "source", "--syntax", "--pin", "2.6.0"]),
        ("check-source --syntax", ["--build", "source", "--syntax"]),
        ("check-source --source /a", ["--build", "source", "--source", "/a"]),
        ("check-cuda --jobs 2", ["--cuda", "--jobs", "2"]),
    ],
)
def test_kinds_of_check(words: str, given: list[str]) -> None:
    def of(words: list[str]) -> tuple[str, Request, bool, bool]:
        verb, request, own = cli.read(VERBS, words)
        return verb.name, request, own.cuda, own.syntax

    assert of(words.split()) == of(["check", *given])


def test_source_alone_keeps_the_mirror(monkeypatch: Patch) -> None:
    monkeypatch.setenv("GRAFT_SOURCE", "https://a.b/c")
    _, request, _ = cli.read(VERBS, ["check", "--source"])
    assert (request.build, request.source) == ("source", "https://a.b/c")
    _, request, _ = cli.read(VERBS, ["check", "--source", "/checkout"])
    assert (request.build, request.source) == ("graft", "/checkout")


def test_short_names_are_make_s_alone(monkeypatch: Patch) -> None:
    """WSL sets NAME, and other programs read JOBS, too."""
    for name in ("JOBS", "NAME", "PIN", "VERSION"):
        monkeypatch.setenv(name, "x y")
    _, request, _ = cli.read(VERBS, ["thin-wheel"])
    assert (request.jobs, request.name, request.pin, request.version) == (os.cpu_count(), "", "", "0.1")
    assert os.environ["NAME"] == "x y"


def test_variables_reach_the_builder_on_another_python(monkeypatch: Patch) -> None:
    monkeypatch.setattr(cli, "_another_python", lambda *_: Path("/other/python"))

    def started(command: str, words: list[str]) -> None:
        raise KeyboardInterrupt(os.environ.get("GRAFT_JOBS"))

    monkeypatch.setattr(cli.os, "execv", started)
    monkeypatch.setenv("GRAFT_JOBS", "3")
    assert cli.main(VERBS, ["develop"]) == 130
    assert os.environ["GRAFT_JOBS"] == "3"


def test_wrong_variable_is_named_as_it_was_written(capsys: Capture, monkeypatch: Patch) -> None:
    monkeypatch.setenv("GRAFT_JOBS", "many")
    assert cli.main(VERBS, ["check"]) == 2
    assert "error: JOBS: many is not a positive number\n" in capsys.readouterr().err


def test_relative_path_is_refused_if_make_changed_the_folder(
    tmp_path: Path, capsys: Capture, monkeypatch: Patch
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


def test_native_names_one_folder_or_several(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("a", "b", "with space", "home/x", "it's"):
        (tmp_path / name).mkdir(parents=True)

    def names(text: str) -> list[str]:
        folders = native_folders(text)
        assert all(folder.is_absolute() for folder in folders)
        return [str(folder.relative_to(tmp_path)) for folder in folders]

    for text, expected in {
        "a": ["a"],
        "a b": ["a", "b"],
        "a gone": ["a", "gone"],
        "a new one": ["a", "new", "one"],
        "all new": ["all new"],
        "with space": ["with space"],
        "'with space' ~/x ./b/../a": ["with space", "home/x", "a"],
        "with\\ space a": ["with space", "a"],
        "it's": ["it's"],
        # A missing folder is named as the user wrote it.
        "'with space' ~x": ["with space", "~x"],
        "it's here": ["it's here"],
        "new space": ["new space"],
        f"new {tmp_path}/b": ["new", "b"],
        "": ["."],
    }.items():
        assert names(text) == expected


def test_folders_behind_a_verb(tmp_path: Path, monkeypatch: Patch, capsys: Capture) -> None:
    """Relative to the folder that the user is in; each is one folder."""
    write(tmp_path, {"a/x": "", "with space/x": ""})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GRAFT_NATIVE", "/other")
    for verb in ("check", "build", "develop", "thin-wheel"):
        _, request, _ = cli.read(VERBS, [verb, "a", "--jobs", "2"])
        assert request.native == (tmp_path / "a",)
        _, request, _ = cli.read(VERBS, [verb, "--jobs", "2", "with space", "~/a", "new", "../gone"])
        assert request.native == (tmp_path / "with space", tmp_path / "a", tmp_path / "new", tmp_path.parent / "gone")
        assert cli.read(VERBS, [verb, "new", "gone"])[1].native == (tmp_path / "new", tmp_path / "gone")
        _, request, _ = cli.read(VERBS, [verb, "--source", "/checkout", "a"])
        assert (request.source, request.native) == ("/checkout", (tmp_path / "a",))
    for words, said in ((["a", "--native", "b"], "--native b: folders are given, too"), ([""], "FOLDER is empty")):
        assert cli.main(VERBS, ["check", *words]) == 2
        assert f"error: {said}\n  next: " in capsys.readouterr().err
    assert cli.main(VERBS, ["undevelop", "a"]) == 2


def test_no_error_ends_watching(monkeypatch: Patch, capsys: Capture) -> None:
    """What Graft does not expect is shown, and the next save is built."""
    saves = iter([1, 2])

    def wait(request: Request, seen: object) -> object:
        try:
            return next(saves)
        except StopIteration:
            raise KeyboardInterrupt from None

    errors = [SystemError("AST constructor recursion depth mismatch")]

    def build(request: Request, own: object) -> None:
        if errors:
            raise errors.pop()

    monkeypatch.setattr(verbs, "_wait", wait)
    monkeypatch.setattr(verbs, "_develop", build)
    with pytest.raises(KeyboardInterrupt):
        verbs.develop(SimpleNamespace(watch=True), SimpleNamespace())  # type: ignore[arg-type]
    said = capsys.readouterr().err
    assert said.index("error: SystemError: AST constructor") < said.index("ready; waiting for the next save")
