"""What makes a folder a native folder, for every command; and native folders below others."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest
from graft import options
from graft.core.errors import UsageError
from graft.core.folders import is_native
from graft.core.layout import Layout, TorchVersion
from graft.deliver.thin import write_sdist
from graft.inputs.native import load_native
from graft.inputs.snapshot import take_snapshot
from graft.project.settings import read_project
from helpers import Patch, write

PYPROJECT = '[project]\nname = "my-ops"\nversion = "1.0"\n'
RULE = "TORCH_LIBRARY_IMPL(aten, FuncTorchBatched, m) {}\n"

# The least that a native folder has.
LEAST = {
    "a kernel of a stub": {"quantized/cpu/Kernels.cpp": "REGISTER_DISPATCH(qadd_stub, &kernel)\n"},
    "entries": {"native_functions.yaml": ""},
    "formulas": {"derivatives.yaml": ""},
    "vectorized kernels": {"cpu/AKernel.cpp": ""},
    "text for Python files of torch": {"python/_decomp/decompositions.py": ""},
    "stubs": {"python/nn/functional.pyi": ""},
    "a batching rule": {"Rules.cpp": RULE},
    "an autocast policy": {"Rules.cpp": "TORCH_LIBRARY_IMPL( aten , AutocastCPU, m) {}\n"},
}
LESS = {
    "nothing": {},
    "other text": {"python/notes.md": "", "cpu/notes.md": ""},
    "another library's operators": {"A.cpp": "TORCH_LIBRARY_IMPL(mine, CPU, m) {}\n"},
    "a program": {"main.cpp": "int main() {}\n"},
    "docstrings": {"docs/a.rst": "A.\n"},
}


def usual_folder(current: Path, monkeypatch: Patch) -> str:
    """Return the default of NATIVE of the installed tool in the folder ``current``."""
    monkeypatch.setattr(options, "IS_CHECKOUT", False)
    monkeypatch.chdir(current)
    return options._native()


def layout_of(*folders: Path) -> Layout:
    return Layout(TorchVersion("2.13.0+cpu"), folders, folders[0])


@pytest.mark.parametrize("files", LEAST.values(), ids=LEAST)
def test_little_makes_a_native_folder(files: dict[str, str], tmp_path: Path, monkeypatch: Patch) -> None:
    """For builds, for projects, and as the default of NATIVE."""
    native = write(tmp_path / "native", files)
    assert is_native(native)
    assert [str(name) for name in load_native(native).files] == list(files)
    assert take_snapshot(layout_of(native)).files.keys() >= {f"native/0/{name}" for name in files}
    write(tmp_path, {"pyproject.toml": f"{PYPROJECT}[tool.graft]\nnative = 'native'\n"})
    assert read_project(tmp_path).natives == (native,)
    assert usual_folder(tmp_path, monkeypatch) == "native"


@pytest.mark.parametrize("files", LESS.values(), ids=LESS)
def test_less_does_not(files: dict[str, str], tmp_path: Path, monkeypatch: Patch) -> None:
    native = write(tmp_path / "native", files)
    native.mkdir(exist_ok=True)
    assert not is_native(native)
    with pytest.raises(UsageError, match=r"native: it contains no native_functions\.yaml"):
        take_snapshot(layout_of(native))
    write(tmp_path, {"pyproject.toml": f"{PYPROJECT}[tool.graft]\nnative = 'native'\n"})
    with pytest.raises(UsageError, match=r"native: it contains no native_functions\.yaml"):
        read_project(tmp_path)
    assert usual_folder(tmp_path, monkeypatch) == "."


@pytest.mark.parametrize("name", ["native_functions.yml", "ops.yaml"])
def test_list_of_another_name_is_named_first(name: str, tmp_path: Path) -> None:
    native = write(tmp_path / "native", {"A.cpp": "", name: "- func: f(Tensor self) -> Tensor\n"})
    with pytest.raises(UsageError) as caught:
        take_snapshot(layout_of(native))
    assert (
        caught.value.what == f"{native / name}: a native folder's list of operators must be named native_functions.yaml"
    )
    assert caught.value.todo.startswith(f"rename {name} ")


def test_docstrings_alone_are_a_folder_beside_another(tmp_path: Path) -> None:
    """They describe the operators of that one."""
    one, two = write(tmp_path / "one", LEAST["entries"]), write(tmp_path / "two", LESS["docstrings"])
    assert "native/1/docs/a.rst" in take_snapshot(layout_of(one, two)).files
    write(tmp_path, {"pyproject.toml": f"{PYPROJECT}[tool.graft]\nnative = ['one', 'two']\n"})
    assert read_project(tmp_path).natives == (one, two)
    three = write(tmp_path / "three", LESS["docstrings"])
    with pytest.raises(UsageError, match=f"{two}: it contains no"):
        take_snapshot(layout_of(two, three))


# A native folder with others below it.
OUTER = {"native_functions.yaml": "", "A.cpp": "", "sparse/B.cpp": ""}
INNER = {
    "faster/cpu/CumsumKernel.cpp": "",
    "faster/natve_functions.yaml": "",
    "sparse/theirs/native_functions.yaml": "",
    "sparse/theirs/C.cpp": "",
    "sparse/theirs/C.cc": "",
}


def test_native_folder_below_another_is_left_alone(tmp_path: Path) -> None:
    folder = write(tmp_path, {**OUTER, **INNER})
    native = load_native(folder)
    assert {str(name) for name in native.files} == {*OUTER}
    assert native.unread == ()
    # ATen's own folders with kernels in cpu/ are parts of the folder.
    write(folder, {"quantized/cpu/Q.cpp": ""})
    assert Path("quantized/cpu/Q.cpp") in load_native(folder).sources


@pytest.mark.parametrize("native", [".", "native"])
def test_native_folder_below_another_is_not_in_the_sdist(native: str, tmp_path: Path) -> None:
    """Nor is it built. Other folders are the project's own, Python packages with sources in them also."""
    root = write(tmp_path / "project", {"pyproject.toml": f"{PYPROJECT}[tool.graft]\nnative = '{native}'\n"})
    write(root / native, {**OUTER, **INNER})
    others = ["my_ops/__init__.py", "my_ops/cpu/source.cpp", f"{native}/tools/python/run.py", f"{native}/tests/t.cpp"]
    write(root, dict.fromkeys(others, RULE))
    project = read_project(root)
    with tarfile.open(write_sdist(root, project.config, tmp_path, without=project.left_out)) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    own = [f"{native}/{name}".removeprefix("./") for name in OUTER]
    assert {"pyproject.toml", *own, *(name.removeprefix("./") for name in others)} <= names
    assert not [name for name in names if "faster" in name or "theirs" in name]
