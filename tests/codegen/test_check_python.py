"""``make check`` on the Python files and docstrings of a native folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus import said_of
from graft.check.base import BaseOperators

FUNCTION = "- func: graft_probe(Tensor self) -> Tensor\n"
KERNEL = "namespace at::native {\nTensor graft_probe(const Tensor& self) { return self; }\n}\n"


def lines(folder: Path, files: dict[str, str], known: BaseOperators) -> list[str]:
    return said_of(folder, known, {"native_functions.yaml": FUNCTION, "A.cpp": KERNEL, **files})


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "_inductor/decomposition.py",
            "decompositions[undefined_name] = 1\n",
            "1:16: `undefined_name` is not defined here or in torch's decomposition.py; ",
        ),
        (
            "_inductor/decomposition.py",
            "x = [atten.put]\n",
            "1:6: `atten` is not defined here or in torch's decomposition.py; did you mean `aten`?",
        ),
        (
            "mine.py",
            "def f():\n    return other\n",
            "2:12: warning: `other` is not defined here; the function that uses",
        ),
        (
            "_inductor/decomposition.py",
            "\n@register_decomposition([aten.put])\ndef put(self): ...\n",
            "2: PyTorch has a decomposition of aten.put.default, and registers no second; to replace it, write "
            "`decompositions.pop(aten.put.default)` before",
        ),
        (
            "_decomp/decompositions.py",
            "@register_decomposition(aten.lerp.Scalar)\ndef lerp(self): ...\n",
            "1: PyTorch has a decomposition of aten.lerp.Scalar, and registers no second; to replace it, write yours "
            "into python/_decomp/__init__.py, behind `decomposition_table.pop(torch.ops.aten.lerp.Scalar)`",
        ),
    ],
)
def test_what_fails_when_torch_imports_a_module_later(
    name: str, text: str, expected: str, known: BaseOperators, tmp_path: Path
) -> None:
    (line,) = lines(tmp_path, {f"python/{name}": text}, known)
    assert line.startswith(f"python/{name}:{expected}")


def test_decomposition_in_place_of_pytorch_s(known: BaseOperators, tmp_path: Path) -> None:
    text = "decompositions.pop(aten.put.default)\n\n\n@register_decomposition(aten.put)\ndef put(self): ...\n"
    assert lines(tmp_path, {"python/_inductor/decomposition.py": text}, known) == []


def test_files_that_are_right_have_no_mistake(known: BaseOperators, tmp_path: Path) -> None:
    files = {
        "python/nn/modules/probe.py": "from __future__ import annotations\n\nclass Probe: ...\n",
        "python/nn/modules/__init__.py": 'from .probe import Probe\n\n__all__ += ["Probe"]\n',
        "python/nn/functional.py": "graft_probe = torch.graft_probe\n",
        "python/nn/functional.pyi": "from torch import graft_probe as graft_probe\n",
        "python/graft_package/__init__.py": "",
        "python/graft_package/deep/__init__.py": "",
        "python/graft_package/deep/module.py": "",
        "python/nn/__pycache__/functional.pyc": "not Python",
        "docs/graft_probe.rst": "Probes.\n",
        "samples.py": "".join(f"def graft_probe{of}(given): ...\n" for of in ("", "_reference", "_errors")),
    }
    assert lines(tmp_path, files, known) == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("python/nn/modules/probe.py", "x = 1\ndef f(:\n", "python/nn/modules/probe.py:2:7: not Python: "),
        (
            "samples.py",
            "def graft_probe(make): ...\ndef graft_probe_referense(x): ...\n",
            "samples.py:2:5: no operator of the folder is named graft_probe_referense; did you mean `graft_probe_ref",
        ),
        (
            "python/nn/module/probe.py",
            "",
            "python/nn/module/probe.py:1: torch has no package nn/module; did you mean `modules`",
        ),
        (
            "python/quux/deep/probe.py",
            "",
            "python/quux/deep/probe.py:1: torch has no package quux; a new package needs",
        ),
        (
            "python/_meta_registration.py",
            "",
            "python/_meta_registration.py:1: warning: torch has no _meta_registration.py, and nothing imports it; did "
            "you mean `_meta_registrations.py`?",
        ),
        ("python/nn/probe.txt", "", "python/nn/probe.txt:1: not a .py or .pyi file"),
        ("python/_torch_docs.py", "", "python/_torch_docs.py:1: the build writes torch/_torch_docs.py itself; write"),
        (
            "python/functional.py",
            "\nfrom __future__ import annotations\n",
            "python/functional.py:2:1: is invalid after torch's functional.py: from __future__",
        ),
        (
            "python/nn/functional.py",
            "",
            "python/nn/functional.py:1: warning: type checkers read torch's functional.pyi",
        ),
        (
            "docs/graft_prob.rst",
            "",
            "docs/graft_prob.rst:1: no operator of the folder is named graft_prob; did you mean `graft_probe`?",
        ),
    ],
)
def test_mistake_is_found_at_its_place(
    name: str, text: str, expected: str, known: BaseOperators, tmp_path: Path
) -> None:
    found = lines(tmp_path, {name: text}, known)
    assert len(found) == 1, found
    assert found[0].startswith(expected), found


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("Other.cc", "Other.cc:1: warning: PyTorch's build does not compile .cc files; name it Other.cpp"),
        ("cpu/Other.cxx", "cpu/Other.cxx:1: warning: PyTorch's build does not compile .cxx files; name it Other.cpp"),
        ("derivatives.yml", "derivatives.yml:1: no build reads this file, but derivatives.yaml; name it derivatives"),
        ("derivative.yaml", "derivative.yaml:1: no build reads this file, but derivatives.yaml; name it derivatives"),
        ("cpu/native_functions.yaml", "cpu/native_functions.yaml:1: no build reads this file, but native_functions"),
        ("sample.py", "sample.py:1: no build reads this file, but samples.py; name it samples.py, or otherwise"),
        ("python/data.json", "python/data.json:1: not a .py or .pyi file; put only Python files into python/"),
    ],
)
def test_file_that_no_build_reads_is_told(name: str, expected: str, known: BaseOperators, tmp_path: Path) -> None:
    (line,) = lines(tmp_path, {name: ""}, known)
    assert line.startswith(expected)


def test_files_of_tests_and_tools_are_left_alone(known: BaseOperators, tmp_path: Path) -> None:
    names = ("tests/samples.yaml", "tests/helper.cc", ".clang-format.yaml", ".github/ci.yml", "README.md", "LICENSE")
    names += ("setup.py", "config.yaml", "docs/conf.py", "docs/guide.md", "build/native_functions.yaml", "venv/x.cc")
    assert lines(tmp_path, dict.fromkeys(names, ""), known) == []
