"""The version of a wheel depends on all inputs: the folder's files, the compiler, the builder's own code."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from graft.core.layout import REPOSITORY, Layout, TorchVersion
from graft.inputs import snapshot
from graft.inputs.snapshot import take_snapshot
from helpers import Patch, write

# Files that a build reads; generated code depends on these YAML files only.
YAML = {
    "native_functions.yaml": "- func: probe(Tensor self) -> Tensor\n",
    "derivatives.yaml": "- name: probe(Tensor self) -> Tensor\n  self: grad\n",
    "autocast.yaml": "fp32: [probe]\n",
}
CPLUSPLUS = ("Probe.cpp", "Probe.h", "Probe.inl", "Table.inc", "cpu/ProbeKernel.cpp")
CUDA = ("cuda/Probe.cu", "cuda/Helper.cpp", "cuda/Helper.h")
PYTHON = ("python/probe.py", "python/_C/_nn.pyi", "docs/probe.rst")
READ = YAML | dict.fromkeys((*CPLUSPLUS, *CUDA, *PYTHON), "# one\n")

# g++ that reports the version in the file `version`.
COMPILER = """\
#!/bin/sh
case " $* " in *" --version "*) g++ --version | sed "1s/$/ $(cat {here}/version)/"; exit;; esac
exec g++ "$@"
"""


@pytest.fixture
def stamps(tmp_path: Path, monkeypatch: Patch) -> Callable[..., tuple[str, str]]:
    """Return the stamps of a folder's build, and of the generated code, by a copy of the builder."""
    shutil.copytree(REPOSITORY / "scripts", tmp_path / "scripts", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(snapshot, "PACKAGE", tmp_path / "scripts/graft")
    native = write(tmp_path / "native", {**READ, "README.md": "one\n"})
    pin = max(path.name for path in (REPOSITORY / "patches").iterdir() if (path / "pin.yaml").is_file())

    snapshot.hash_of_builder.cache_clear()

    def stamps(cxx: str = "g++") -> tuple[str, str]:
        taken = take_snapshot(Layout(TorchVersion(pin), (native,), tmp_path / "out", cxx=cxx))
        return taken.stamp, taken.stamp_of_generated

    return stamps


def test_stamp_is_of_every_file_that_a_build_reads(stamps: Callable[[], tuple[str, str]], tmp_path: Path) -> None:
    seen = {stamps()}
    for name in READ:
        path = tmp_path / "native" / name
        before, text = len(seen), path.read_text(encoding="utf-8")
        path.write_text(text + "\n", encoding="utf-8")
        seen.add(stamps())
        assert len(seen) == before + 1, name
        assert len({generated for _, generated in seen}) == 1 + (name in YAML), name
        path.write_text(text, encoding="utf-8")
        seen = {stamps()}
    for name in ("README.md", "samples.py"):
        (tmp_path / "native" / name).write_text("two\n")
        assert {stamps()} == seen, name


def test_stamp_is_of_the_compiler_and_its_version(stamps: Callable[..., tuple[str, str]], tmp_path: Path) -> None:
    before = stamps()
    write(tmp_path, {"g++": COMPILER.format(here=tmp_path), "version": "first"})
    (tmp_path / "g++").chmod(0o755)
    first = stamps(str(tmp_path / "g++"))
    (tmp_path / "version").write_text("second")
    second = stamps(str(tmp_path / "g++"))
    assert len({before[0], first[0], second[0]}) == 3
    assert {before[1], first[1], second[1]} == {before[1]}


def test_stamp_is_of_the_code_that_makes_wheels(stamps: Callable[[], tuple[str, str]], tmp_path: Path) -> None:
    def after_edits(*names: str) -> tuple[str, str]:
        for name in names:
            path = tmp_path / "scripts" / name
            path.parent.mkdir(exist_ok=True)
            path.write_bytes((path.read_bytes() if path.is_file() else b"") + b"\n")
        snapshot.hash_of_builder.cache_clear()
        return stamps()

    of_editors = (
        "graft/.build.py.swp",
        "graft/.#build.py",
        "graft/#build.py#",
        "graft/verbs.py~",
        "graft/verbs.py.orig",
    )
    before = stamps()
    assert after_edits("requirements.txt", "graft/__pycache__/build.cpython-311.pyc", *of_editors) == before
    for name in (
        "build.py",
        "codegen/operators.py",
        "codegen/templates/RegisterSchema.cpp",
        "compile/templates/module.cpp",
    ):
        now = after_edits(f"graft/{name}")
        assert [one != other for one, other in zip(before, now, strict=True)] == [True, True], name
        before = now


def test_every_kind_of_file_of_the_builder_is_in_the_stamp() -> None:
    listed = subprocess.run(
        ["git", "ls-files", "scripts/graft"], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert {Path(name).suffix for name in listed.stdout.split()} == set(snapshot._OWN)
