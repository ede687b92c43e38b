"""The Makefile: each Python has its own environment for the builder, and an unsuitable Python is an error."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from graft.core.layout import REPOSITORY, store
from helpers import Patch, program, use_own_bases, write

# What an environment is made with.
MODULES = ("venv", "ensurepip")

# Replaces the builder: prints its Python, its environment and its text mode.
SAY = "import sys; print('ran', *sys.version_info[:2], sys.prefix, sys.flags.utf8_mode)\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a repository, whose virtual environments stay for the next test."""
    return tmp_path_factory.mktemp("make") / "a repository"


@pytest.fixture
def repository(folder: Path) -> Path:
    """A repository with the real Makefile, and a builder that needs no packages and does nothing."""
    shutil.rmtree(folder / "scripts", ignore_errors=True)
    shutil.copytree(REPOSITORY / "scripts", folder / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "tests/kit").mkdir(parents=True, exist_ok=True)
    for name in ("Makefile", "tests/__init__.py", "tests/kit/__init__.py", "tests/kit/__main__.py"):
        shutil.copyfile(REPOSITORY / name, folder / name)
    (folder / "scripts/graft/__main__.py").write_text(SAY)
    (folder / "scripts/requirements.txt").write_text("# nothing\n")
    return folder


@pytest.fixture(autouse=True)
def own_bases(folder: Path, monkeypatch: Patch) -> None:
    """The environments of all these tests are in one store."""
    use_own_bases(folder / "cache", monkeypatch)


def make(folder: Path, python: str | Path, *arguments: str) -> subprocess.Popen[str]:
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "PYTHON"))}
    command = ["make", "check", f"PYTHON={python}", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=folder, env=variables, stdout=pipe, stderr=pipe, text=True)


def ran(process: subprocess.Popen[str]) -> list[str]:
    """Return what the builder printed: the version of its Python, its environment, its UTF-8 mode."""
    out, errors = process.communicate()
    assert process.returncode == 0, errors
    (line,) = (line for line in out.splitlines() if line.startswith("ran "))
    major, minor, rest = line.removeprefix("ran ").split(" ", 2)
    return [f"{major}.{minor}", *rest.rsplit(" ", 1)]


def refused(process: subprocess.Popen[str]) -> str:
    """Return the error of a ``make`` that must not build."""
    out, errors = process.communicate()
    assert process.returncode != 0 and "ran " not in out
    return errors


def called(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run ``make`` to its end, with these words and environment variables."""
    outer = {name: value for name, value in os.environ.items() if name not in ("MAKELEVEL", "MAKEFLAGS", "MFLAGS")}
    command, env = ["make", *words], {**outer, **variables}
    nothing = subprocess.DEVNULL
    return subprocess.run(command, cwd=folder, env=env, stdin=nothing, capture_output=True, text=True, check=False)


def other_python() -> str:
    """Return a Python of another version than this one, with a venv module."""
    probe = "import sys, venv, ensurepip; print(*sys.version_info[:2], sep='.')"
    own = ".".join(map(str, sys.version_info[:2]))
    known = (Path.home() / ".pyenv/versions").glob("3.*/bin/python3")
    for python in [f"python3.{minor}" for minor in range(10, 20)] + sorted(map(str, known)):
        if shutil.which(python):
            done = subprocess.run([python, "-c", probe], capture_output=True, text=True, check=False)
            version = done.stdout.strip()
            if done.returncode == 0 and version != own and int(version.split(".")[1]) >= 10:
                return python
    pytest.skip("there is no second Python here")


def test_the_builder_runs_in_an_environment_of_the_python_that_is_asked_for(repository: Path) -> None:
    """Also if two first runs start at once; and in UTF-8, whatever the locale."""
    processes = [make(repository, python) for python in (sys.executable, sys.executable, other_python())]
    first, again, other = map(ran, processes)
    assert first == again == ran(make(repository, sys.executable))
    assert first[0] == "{}.{}".format(*sys.version_info)
    assert other[0] != first[0] and other[1] != first[1]
    assert all(Path(each[1]).is_relative_to(store()) and each[2] == "1" for each in (first, other))


@pytest.mark.parametrize("python", ["no-such-python", "/no/such/python", ""])
def test_python_that_is_not_there(repository: Path, python: str) -> None:
    assert f"error: PYTHON={python}: program not found\n  next: set PYTHON" in refused(make(repository, python))


@pytest.mark.parametrize("is_environment", [True, False])
def test_python_that_is_a_folder(repository: Path, tmp_path: Path, is_environment: bool) -> None:
    folder = write(tmp_path, {"my env/bin/python" if is_environment else "my env/x": ""}) / "my env"
    said = refused(make(repository, folder))
    next_ = f"did you mean {folder}/bin/python?" if is_environment else "set PYTHON to a program"
    assert said.startswith(f"error: PYTHON={folder}: this is a folder\n  next: {next_}\n")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            "sys.version_info = (3, 9, 1)",
            "this is Python 3.9, too old to build with\n  next: set PYTHON to Python 3.10",
        ),
        *((f"sys.modules['{name}'] = None", "not found: Python's module ensurepip\n  next: ") for name in MODULES),
    ],
)
def test_python_that_is_too_old_or_without_virtual_environments(
    repository: Path, tmp_path: Path, change: str, said: str
) -> None:
    run = "runpy.run_path('scripts/environment.py', run_name='__main__')"
    body = f"import runpy, sys; sys.path.insert(0, 'scripts'); {change}; {run}"
    python = program(tmp_path / "python", f'shift 2\nexec {sys.executable} -c "{body}" "$@"')
    errors = refused(make(repository, python))
    assert said in errors and "Traceback" not in errors


def test_help_shows_the_values_that_are_given(repository: Path) -> None:
    done = called(repository, "JOBS=3", f"PYTHON={sys.executable}")
    assert "\n  JOBS=3 " in done.stdout and "GRAFT_JOBS" not in done.stdout


def test_help_has_groups_and_no_aliases(repository: Path) -> None:
    said = called(repository, f"PYTHON={sys.executable}").stdout
    heads = ["Targets:", "Targets for maintainers:", "Variables, with their values now:"]
    assert [line for line in said.splitlines() if not line.startswith(" ")][:3] == heads
    ours, theirs, variables = said.split("\nTargets for")[0], *said.split("Targets for")[1].split("\nVariables")
    assert all(f"  make {name} " in ours for name in ("check", "develop", "new-op", "test", "clean-all"))
    assert all(f"  make {name} " in theirs for name in ("pin", "lint", "test-mutants"))
    assert not re.search(r"check-(cuda|source)|\b(PINS|STRICT|KEEP_GOING)\b", said)
    assert re.search(r"^  BRANCH= +for import: ", variables, re.M)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("NATVE=/ops", "NATVE: no such variable; did you mean NATIVE?"),
        ("native=/ops", "native: no such variable; did you mean NATIVE?"),
        ("GRAFT_JOBS=3", "GRAFT_JOBS: no such variable; did you mean JOBS?"),
        ("CUDA_ARCH=80", "CUDA_ARCH: no such variable; did you mean CUDA_ARCHS?"),
        ("ZZZ=1", "ZZZ: no such variable\n"),
        *(
            (f"{name}=", f"{name}=: it is empty; leave it out for the default\n")
            for name in ("NATIVE", "SOURCE", "OUT")
        ),
    ],
)
def test_mistaken_variable_is_named(repository: Path, given: str, said: str) -> None:
    errors = refused(make(repository, sys.executable, given))
    assert f"error: {said}" in errors and "\n  next: `make` lists the variables" in errors


def test_variables_of_others_and_aliases_are_no_mistakes(repository: Path) -> None:
    given = (
        "CFLAGS=-g",
        "CC=gcc",
        "SHELL=/bin/sh",
        "PIP_INDEX_URL=x",
        "GRAFT_TRACE=1",
        "MAX_JOBS=2",
        "WHEEL=",
        "PINS=1",
    )
    ran(make(repository, sys.executable, *given, "STRICT=1"))
    done = called(repository, "check", f"PYTHON={sys.executable}", NATIVE="", NATVE="/ops")
    assert done.returncode == 0, done.stderr
    # A make that calls this one has variables of its own.
    write(repository, {"outer": f"all:\n\t$(MAKE) check PYTHON='{sys.executable}'\n"})
    done = called(repository, "-f", "outer", "MINE=1")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["build", "native", "tests", "patches"])
def test_name_of_a_folder_is_no_command_and_says_which_one_is(repository: Path, name: str) -> None:
    (repository / name).mkdir(exist_ok=True)
    done = called(repository, name)
    assert done.returncode != 0 and f"error: `make {name}`: {name} is a folder" in done.stderr
    meant = {"tests": "make test", "patches": "make pin"}.get(name, "make patch-and-build")
    assert f"next: `{meant}" in done.stderr


@pytest.mark.parametrize(
    ("words", "is_elsewhere"),
    [
        *((words, False) for words in ("", "-j2", "-fMakefile.Cpp", "--no-builtin-rules")),
        *((words, True) for words in ("-C .", "-C.", "-kC .", "--directory=.", "--dir .")),
    ],
)
def test_builder_can_tell_that_make_changed_the_folder(words: str, is_elsewhere: bool, tmp_path: Path) -> None:
    """Also where make says nothing of it in MAKEFLAGS, as GNU make 4.4.1."""
    tell = "from graft.core.make import *; print(changes_folder(command_of_make()))"
    recipe = f"all:\n\t@true; MAKEFLAGS= PWD=/ '{sys.executable}' -c '{tell}'\n"
    write(tmp_path, {"Makefile": recipe, "Makefile.Cpp": recipe})
    done = called(tmp_path, "--no-print-directory", *words.split(), PYTHONPATH=str(REPOSITORY / "scripts"))
    assert done.stdout == f"{is_elsewhere}\n", done.stderr


def test_only_make_s_own_names_are_read(repository: Path, monkeypatch: Patch) -> None:
    """The builder reads GRAFT_JOBS, as pip's build frontends need; other programs may read JOBS. Quotes stay."""
    names = ("GRAFT_NATIVE", "GRAFT_JOBS", "JOBS", "GRAFT_PIN", "GRAFT_FILES", "GRAFT_KEEP_GOING")
    say = f"import os\n{SAY}print(*(os.environ.get(name) for name in {names}), sep='|')\n"
    (repository / "scripts/graft/__main__.py").write_text(say)
    monkeypatch.setenv("GRAFT_PIN", "2.14.1")
    native = "'with space' other's \"third one\""
    more = "FILES=native/A.cpp native/B.cpp", "KEEP_GOING=1"
    out, errors = make(repository, sys.executable, "JOBS=3", f"NATIVE={native}", *more).communicate()
    assert f"{native}|3|None|None|native/A.cpp native/B.cpp|1\n" in out, errors


def test_every_folder_of_the_repository_is_known_to_be_one() -> None:
    """For an unknown folder, make would say that there is nothing to do."""
    listed = subprocess.run(["git", "ls-files"], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    folders = {name.split("/")[0] for name in listed.splitlines() if "/" in name and not name.startswith(".")}
    text = (REPOSITORY / "Makefile").read_text()
    refused = re.search(r"^\.PHONY: (build native .*)$", text, re.M)
    assert refused and folders | {"build"} <= set(refused[1].split())


def test_quotes_in_variables_are_no_commands(repository: Path) -> None:
    make(repository, "o'; touch planted; echo '").communicate()
    text = "o'brien'; touch planted; echo '$(touch planted)`touch planted`"
    make(repository, sys.executable, *(f"{name}={text}" for name in ("OUT", "PIN", "NATIVE", "WHEEL"))).communicate()
    assert not (repository / "planted").exists()


def test_makefile_is_not_used_from_elsewhere(repository: Path, tmp_path: Path) -> None:
    done = called(tmp_path, "-f", str(repository / "Makefile"), "check")
    assert done.returncode == 2 and "error: make was run in another folder\n  next: use `make -C`" in done.stderr


# The next two come last: they create the environment that the others share anew, or leave none.


def test_environment_follows_the_requirements_and_not_the_variables_for_python(
    repository: Path, tmp_path: Path
) -> None:
    """The builder's modules are its own; a user's could have the same names. Clones of other versions have others."""
    prefix = ran(make(repository, sys.executable))[1]
    assert ran(make(repository, sys.executable))[1] == prefix
    (repository / "scripts/graft/__main__.py").write_text(f"import yaml, packaging\n{SAY}")
    (repository / "scripts/requirements.txt").write_text("pyyaml\npackaging\n")
    names = ("yaml", "packaging", "ssl", "graft")
    mine = write(tmp_path / "mine", {f"{name}.py": "raise SystemExit('shadowed')\n" for name in names})
    given = {"PYTHONPATH": str(mine), "PYTHONSAFEPATH": "1", "PYTHONHOME": "/nowhere", "PYTHONINSPECT": "1"}
    done = called(repository, "check", f"PYTHON={sys.executable}", **given)
    assert done.returncode == 0 and re.search(r"^ran ", done.stdout, re.M), done.stderr
    assert prefix not in done.stdout and Path(prefix).is_dir()


def test_package_that_cannot_be_had(repository: Path) -> None:
    (repository / "scripts/requirements.txt").write_text("graft-has-no-such-package @ file:///no/such/file.whl\n")
    errors = refused(make(repository, sys.executable))
    assert "error: the builder's packages could not be installed" in errors
    assert "next: " in errors and "Traceback" not in errors
