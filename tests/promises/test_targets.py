"""Each target of the Makefile: the builder accepts its command line. READMEs show each, and a test types it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from graft import cli as command_line
from graft.core.layout import REPOSITORY
from helpers import program, write
from place import Place

from tests.kit import __main__ as kit

# Names of folders that are not targets: make explains that.
FOLDERS = {"build", "native", "patches", "scripts", "tests"}


def make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run make as a user does, without the variables of the make that runs these tests."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "ARGS=", "WHEEL=", *words]
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, check=False)


def targets() -> list[str]:
    """Return the phony targets, as listed by make."""
    listed = make(REPOSITORY, "--print-data-base", "--question", "help").stdout
    (line,) = (line for line in listed.splitlines() if line.startswith(".PHONY:"))
    return sorted(set(line.split()[1:]) - FOLDERS)


def test_help_names_every_target() -> None:
    said = make(REPOSITORY).stdout
    assert {
        target for target in targets() if not re.search(rf"^  make {target} ", said, re.M)
    } == command_line.ALIASES.keys()


@pytest.mark.parametrize("target", sorted({*targets()} - {"help", "clean"}))
def test_builder_understands_the_recipe(target: str, tmp_path: Path) -> None:
    """A Python that records its arguments instead of the builder."""
    python = program(tmp_path / "python", f'printf "%s\\n" "$@" --end-- >>{tmp_path}/told')
    done = make(REPOSITORY, target, f"PYTHON={python}", "SCHEMA=f() -> ()", "TORCH=2.16.0", "SOURCE=tree")
    assert done.returncode == 0, done.stderr
    *before, last = (tmp_path / "told").read_text(encoding="utf-8").split("--end--\n")[:-1]
    for each in (*before, last):
        flag, script, module, *told = each.splitlines()
        assert (flag, script) == ("-E", "scripts/environment.py")
    if module == "nox":
        sessions = {"-s lint": "lint", "-s matrix -j 1 --": "test-matrix"}
        assert sessions[" ".join(told)] == target
    elif module == "hatchling":
        assert told == ["build", "-t", "wheel", "-d", "dist"]
    else:
        verb, *_ = command_line.read({"graft": command_line.VERBS, "tests.kit": kit.VERBS}[module], told)
        others = {"patch-and-build": "build", "new-op": "new", "clean-all": "clean", "clean-cache": "clean"}
        assert verb.name == {**others, **dict.fromkeys(command_line.ALIASES, "check")}.get(target, target)


def test_clean_deletes_what_was_made_and_nothing_else(tmp_path: Path) -> None:
    shutil.copyfile(REPOSITORY / "Makefile", tmp_path / "Makefile")
    write(tmp_path, {"build/made": "", "dist/torch.whl": "", "native/mine.cpp": "", "patches/series": ""})
    assert make(tmp_path, "clean").returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Makefile", "native", "patches"]


def test_nightly_refuses_steps_that_it_has_not(plain: Place) -> None:
    done = plain.run(["make", "test-nightly", "ARGS=slow nothing"])
    assert "error: nothing: no such step\n" in done.said and "Error 2\n" in done.said


@pytest.mark.slow
def test_sources_for_cuda_compile() -> None:
    done = make(REPOSITORY, "check", "ARGS=--cuda", "NATIVE=tests/bases/my_ops", "CUDA_ARCHS=80")
    assert done.returncode == 0, done.stderr
    assert "its CUDA sources compile for sm_80 with PyTorch" in done.stderr


@pytest.mark.slow
def test_one_case_of_the_benchmarks(tmp_path: Path) -> None:
    arguments = f"affine --rounds 1 --seconds 0.001 --threads 1 --folder {tmp_path}"
    done = make(REPOSITORY, "bench", f"ARGS={arguments}")
    assert done.returncode == 0, done.stderr
    assert "affine" in done.stdout
    assert {file.name for file in tmp_path.iterdir()} == {
        "bench.json",
        "bench.svg",
        "bench.txt",
        "overview.md",
        "summary.md",
    }
    assert "affine vs. F.linear" in (tmp_path / "bench.svg").read_text(encoding="utf-8")
    assert "| `affine` | `F.linear` | " in (tmp_path / "overview.md").read_text(encoding="utf-8")
