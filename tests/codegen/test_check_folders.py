"""``make check`` on several native folders that are built together, and on files that are not text."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from graft.check.__main__ import check
from graft.check.base import BaseOperators
from graft.check.generator import Generator
from graft.codegen import NO_CUDA
from graft.core.errors import BuildError
from graft.core.layout import Layout, TorchVersion
from graft.inputs.native import load_natives
from graft.inputs.snapshot import take_snapshot
from helpers import write

Files = dict[str, str | bytes]

ONE: Files = {
    "native_functions.yaml": "- func: graft_one(Tensor self) -> Tensor\n  dispatch:\n    CPU, Meta: graft_one\n",
    "One.cpp": "namespace at::native {\nTensor graft_one(const Tensor& self) { return self; }\n}\n",
    "derivatives.yaml": "- name: graft_two(Tensor self) -> Tensor\n  self: graft_one(grad)\n",
}
TWO: Files = {
    "native_functions.yaml": "- func: graft_two(Tensor self) -> Tensor\n  dispatch:\n    CPU, Meta: graft_two\n",
    "Two.cpp": "namespace at::native {\nTensor graft_two(const Tensor& self) { return self; }\n}\n",
    "derivatives.yaml": "- name: graft_one(Tensor self) -> Tensor\n  self: graft_two(grad)\n",
}

# One, without the other.
ALONE: Files = {**ONE, "derivatives.yaml": "- name: graft_one(Tensor self) -> Tensor\n  self: grad\n"}

CLASHES = yaml.safe_load(Path(__file__).with_name("clashes.yaml").read_text())


def is_for_cuda(known: BaseOperators) -> bool:
    """A torch for CUDA needs the kernels for CUDA of every folder."""
    return (known.tree / "torch/lib/libtorch_cuda.so").is_file()


def lines(folder: Path, known: BaseOperators, **folders: Files) -> list[str]:
    natives = load_natives([write(folder / name, files) for name, files in folders.items()])
    found = check(natives, known).lines()
    return [line.replace(f"{folder}/", "") for line in found]


def test_entries_of_all_folders_are_judged_together(known: BaseOperators, tmp_path: Path) -> None:
    shared: Files = {
        "Shared.h": "#pragma once\n",
        "python/nn/functional.pyi": "",
        "python/nn/functional.py": "graft_probe = torch.graft_one\n",
        "python/graft_package/module.py": "",
        "docs/graft_one.rst": "One.\n",
    }
    one: Files = {**ONE, **shared, "python/graft_package/__init__.py": "", "samples.py": "def graft_two(make): ...\n"}
    two: Files = {**TWO, **shared, "samples.py": "def graft_one(make): ...\n", "autocast.yaml": "fp32: [graft_one]\n"}
    assert lines(tmp_path, known, one=one, two=two) == []


def test_one_folder_alone_lacks_what_the_other_has(known: BaseOperators, tmp_path: Path) -> None:
    found = lines(tmp_path, known, one=ONE)
    assert any(line.startswith("one/derivatives.yaml:1:9: no function is named graft_two") for line in found)


@pytest.mark.parametrize("case", CLASHES, ids=lambda case: case["expect"].split(" ")[0])
def test_clash_names_both_places(case: dict[str, Any], known: BaseOperators, tmp_path: Path) -> None:
    (line,) = lines(tmp_path, known, one={**ONE, **case["one"]}, two={**TWO, **case["two"]})
    assert line.startswith(case["expect"])


@pytest.mark.parametrize(
    "name",
    [
        *("native_functions.yaml", "autocast.yaml", "One.h", "One.inl", "One.inc", "cuda/One.cu", "cuda/One.cpp"),
        *("python/nn/probe.py", "python/nn/probe.pyi", "samples.py", "docs/graft_one.rst"),
    ],
)
def test_text_that_is_not_utf_8_is_found_by_its_byte(name: str, known: BaseOperators, tmp_path: Path) -> None:
    # It is not judged otherwise, Python as Python for example.
    text = b"# \xc3\xa9t\xc3\xa9\n#  \xe9 { ] nonsense\ndef f(:\n"
    about = [line for line in lines(tmp_path, known, one={**ALONE, name: text}) if line.startswith(f"one/{name}:")]
    assert about == [f"one/{name}:2:4: not UTF-8: invalid byte 0xe9; save the file as UTF-8 [file-encoding]"]


def test_kernel_in_a_file_that_is_not_utf_8_is_there(known: BaseOperators, tmp_path: Path) -> None:
    files: Files = {**ONE, "derivatives.yaml": "", "One.cpp": str(ONE["One.cpp"]).encode() + b"// \xe9\n"}
    found = [line for line in lines(tmp_path, known, one=files) if "warning" not in line]
    assert [line.partition(" ")[0] for line in found] == ["one/One.cpp:4:4:"]


@pytest.mark.parametrize("name", ["One.inl", "One.inc", "cpu/One.inl", "cuda/One.inl"])
def test_included_sources_are_read(name: str, known: BaseOperators, tmp_path: Path) -> None:
    files: Files = {**ALONE, "One.cpp": "// Nothing.\n"}
    (line,) = [line for line in lines(tmp_path, known, one=files) if "no file of the folder defines" in line]
    assert line.startswith("one/native_functions.yaml:2:3: ")
    assert lines(tmp_path, known, one={**files, name: ONE["One.cpp"]}) == []


def test_kernels_of_cuda_are_wanted_of_the_folder_that_has_some(known: BaseOperators, tmp_path: Path) -> None:
    wanted = "no file of the folder defines at::native::graft_one_cuda"
    one: Files = {**ONE, "native_functions.yaml": str(ONE["native_functions.yaml"]) + "    CUDA: graft_one_cuda\n"}
    two: Files = {**TWO, "cuda/Two.cu": "// Nothing.\n"}
    without = lines(tmp_path, known, one=one, two=two)
    assert [wanted in line for line in without] == ([True] if is_for_cuda(known) else [])
    (line,) = lines(tmp_path, known, one={**one, "cuda/One.cu": "// Nothing.\n"}, two=two)
    assert wanted in line


def test_c_plus_plus_of_cuda_makes_the_kernels_of_cuda_wanted(known: BaseOperators, tmp_path: Path) -> None:
    files: Files = {**ALONE, "native_functions.yaml": f"{ONE['native_functions.yaml']}    CUDA: graft_one_cuda\n"}
    assert len(lines(tmp_path, known, one=files)) == is_for_cuda(known)
    files["cuda/One.cpp"] = "namespace at::native {\nTensor graft_one_cuda(Tensor self) { return self; }\n}\n"
    (line,) = lines(tmp_path, known, one=files)
    assert line.startswith(
        "one/cuda/One.cpp:2: `Tensor graft_one_cuda(Tensor)` is not the kernel of graft_one for CUDA"
    )


def test_python_alone_is_for_files_of_torch(known: BaseOperators, tmp_path: Path) -> None:
    """Otherwise, any project may have a folder of that name."""
    files: Files = {"python/graft_probe.py": "", "python/setup.py": ""}
    (line,) = lines(tmp_path, known, one=files)
    assert line == (
        "one/python/graft_probe.py:1: torch has none of the files in python/, and the folder has nothing else; "
        "put text at the path of the file of torch that it is for, or write native_functions.yaml [python-only-folder]"
    )
    assert lines(tmp_path, known, one={**ONE, **files}, two=TWO) == []


@pytest.mark.parametrize(
    ("named", "namespace", "more"),
    [
        ("vision::ops::graft_one", "vision::ops::native", ""),
        ("graft_one", "vision::ops", "namespace at::native {{\n{}{{ return vision::ops::graft_one(self); }}\n}}\n"),
    ],
)
def test_kernel_in_a_namespace_of_its_own(
    named: str, namespace: str, more: str, known: BaseOperators, tmp_path: Path
) -> None:
    """torchgen appends `::native`; or a function in at::native forwards."""
    declared = "at::Tensor graft_one(const at::Tensor& self) "
    text = f"namespace {namespace} {{\n{declared}{{ return self; }}\n}}\n{more.format(declared)}"
    functions = str(ONE["native_functions.yaml"]).replace("Meta: graft_one", f"Meta: {named}")
    one: Files = {**ONE, "native_functions.yaml": functions, "One.cpp": text}
    assert lines(tmp_path, known, one=one, two=TWO) == []


@pytest.mark.parametrize(("name", "place"), [("csrc/ops/one.cpp", "one.cpp"), ("src/one.cc", "one.cpp")])
def test_kernel_in_a_folder_that_is_not_read(name: str, place: str, known: BaseOperators, tmp_path: Path) -> None:
    one: Files = {**ONE, "One.cpp": "// Tensor graft_one\n", name: str(ONE["One.cpp"]), "build/One.cpp": ONE["One.cpp"]}
    found = lines(tmp_path, known, one=one, two=TWO)
    assert found == [
        f"one/{name}:2: `Tensor graft_one(const Tensor&)`, the kernel of graft_one for CPU, is in a folder that is not "
        f"read; move it to {place}, or name it in `sources` of [tool.graft] in pyproject.toml [kernel-missing]"
    ]
    if name.endswith(".cpp"):
        including: Files = {**one, "One.cpp": f'#include "{name}"\n'}
        assert lines(tmp_path, known, one=including, two=TWO) == []


def test_kernel_in_a_folder_that_is_not_read_is_in_the_snapshot(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which the checks read."""
    one: Files = {**ONE, "csrc/one.cpp": str(ONE["One.cpp"])}
    write(tmp_path, {**one, "derivatives.yaml": "", "One.cpp": "", "venv/pyvenv.cfg": "", "venv/x.cpp": ""})
    monkeypatch.setattr(Layout, "work", tmp_path / "work")
    layout = Layout(TorchVersion("2.13.0+cpu"), (tmp_path,), tmp_path / "out")
    tree: Any = SimpleNamespace(tree=base)
    snapshot = take_snapshot(layout)
    (folder,) = snapshot.lay_out().folders
    assert folder.elsewhere.keys() == {Path("csrc/one.cpp")}
    (tmp_path / "csrc/one.cpp").write_text("// edited while it is checked\n")
    with pytest.raises(BuildError, match=rf"^{tmp_path}/csrc/one.cpp:2: .* is in a folder that is not read"):
        Generator(layout, snapshot, tree, NO_CUDA).start()
    # No build depends on it.
    (tmp_path / "csrc/one.cpp").write_text("")
    assert take_snapshot(Layout(TorchVersion("2.13.0+cpu"), (tmp_path,), tmp_path / "out")).stamp == snapshot.stamp


def test_warnings_are_there_again_when_nothing_has_changed(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Editors ask again and again. The first process has noted those about the YAML."""
    native = write(tmp_path / "native", {**ONE, "derivatives.yaml": "", "python/nn/functionall.py": ""})
    monkeypatch.setattr(Layout, "work", tmp_path / "work")
    layout = Layout(TorchVersion("2.13.0+cpu"), (native,), tmp_path / "out")

    def codes(**texts: str) -> list[str]:
        write(native, {"python/_utils.py": "", **texts})
        tree: Any = SimpleNamespace(tree=base)
        snapshot = take_snapshot(layout)
        snapshot.lay_out()
        with Generator(layout, snapshot, tree, NO_CUDA) as generator:
            generator.start()
            generator.finish()
        return sorted(each.code for each in generator.findings)

    assert codes() == codes() == ["formula-missing", "unknown-module"]
    assert codes(**{"python/_utils.py": "# functionall\n"}) == ["formula-missing"]
