"""Extensions as their authors write them, delivered as libraries of their own from their source trees: projects that
both have a module ``_C`` and a C++ function ``soft_clip``, beside the README's operator.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from zipfile import ZipFile

import pytest
from graft.adopt.builds import as_settings, their_build
from graft.core.errors import UsageError
from graft.core.layout import INTERPRETER
from helpers import write
from users import CLIP_EDITED, Environment, make, thin_wheel, write_clip

# One with pybind11, whose module Python imports.
ALPHA = {
    "setup.py": """
import os
from setuptools import find_packages, setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

assert "https_proxy" not in os.environ
with open("alpha/version.py", "w") as file:
    file.write("__version__ = '1.5'\\n")
with open(os.path.join("alpha", "version.py")) as file:
    exec(file.read())
extension = CppExtension(
    "alpha._C",
    ["csrc/ops.cpp", "csrc/deep/module.cpp"],
    include_dirs=[os.path.abspath("include")],
    define_macros=[("ALPHA_STEP", "2")],
    undef_macros=["NO_SUCH_MACRO"],
    extra_compile_args={"cxx": ["-O1", "-std=c++14"], "nvcc": ["--use_fast_math"]},
    extra_link_args=["-s"],
)
setup(
    name="alpha-ops",
    version=__version__,
    license_files=["LICENSE"],
    packages=find_packages(exclude=["tests"]),
    ext_modules=[extension],
    cmdclass={"build_ext": BuildExtension},
)
""",
    "LICENSE": "Anyone may use alpha.\n",
    "include/alpha.h": "#pragma once\n#include <ATen/core/Tensor.h>\nat::Tensor soft_clip(const at::Tensor& x);\n",
    "csrc/ops.cpp": """#include <ATen/TensorOperators.h>
#include <alpha.h>
#include <torch/library.h>
at::Tensor soft_clip(const at::Tensor& x) { return x + ALPHA_STEP; }
at::Tensor twice(const at::Tensor& x) { return soft_clip(soft_clip(x)); }
TORCH_LIBRARY(alpha, m) { m.def("twice(Tensor x) -> Tensor", &twice); }
""",
    "csrc/deep/module.cpp": """#include "alpha.h"
#include <pybind11/pybind11.h>
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("answer", [] { return 42; });
  m.def("where", [] { return __FILE__; });
}
""",
    "alpha/__init__.py": """
import torch
from . import _C
from .deep import name

try:
    from .version import __version__
except ImportError:
    __version__ = "none"
answer = _C.answer
""",
    "alpha/deep/__init__.py": "name = 'alpha'\n",
    "tests/__init__.py": "",
}

# One that is opened by the path that a finder of importlib names; it is no module.
BETA = {
    "setup.py": """
import setuptools
from torch.utils.cpp_extension import BuildExtension, CppExtension

setuptools.setup(
    name="beta",
    packages=["beta"],
    package_dir={"": "python"},
    ext_modules=[CppExtension(name="beta._C", sources=["ops.cc"])],
    cmdclass={"build_ext": BuildExtension.with_options(no_python_abi_suffix=True)},
)
""",
    "ops.cc": """#include <ATen/ops/mul.h>
#include <torch/library.h>
at::Tensor soft_clip(const at::Tensor& x) { return at::mul(x, 3); }
TORCH_LIBRARY(beta, m) { m.def("thrice", &soft_clip); }
""",
    "python/beta/__init__.py": """
import importlib.machinery
import os
import torch

finder = importlib.machinery.PathFinder()
torch.ops.load_library(finder.find_spec("_C", [os.path.dirname(__file__)]).origin)
""",
}

VALUES = """
import torch
def there(name):
    return hasattr(getattr(torch.ops, name), {"alpha": "twice", "beta": "thrice"}[name])
x = torch.full((2,), 50.0)
print(there("alpha"), there("beta"), torch.soft_clip(x)[0].item(), end=" ")
import alpha
print(there("alpha"), there("beta"), torch.ops.alpha.twice(x)[0].item(), end=" ")
print(alpha.answer(), alpha.name, alpha.__version__, end=" ")
import beta
print(torch.ops.beta.thrice(x)[0].item(), x.soft_clip()[0].item(), torch.ops.alpha.twice(x)[0].item())
"""
EXPECTED = "False False 1.0 True False 54.0 42 alpha 1.5 150.0 1.0 54.0"


@pytest.fixture(scope="module")
def folder(environment: Environment, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with both projects, and a native folder ``ops/native`` whose settings are what their builds say."""
    folder = tmp_path_factory.mktemp("extensions")
    write(folder, {f"alpha/{name}": text for name, text in ALPHA.items()})
    write(folder, {f"beta/{name}": text for name, text in BETA.items()})
    texts = ['[project]\nname = "adopted"\nversion = "1.0"\n[tool.graft]\nnative = "native"\n\n']
    packages: list[str] = []
    for name in ("alpha", "beta"):
        build = their_build(folder / name, environment.python)
        written = folder / "ops/written" / name
        write(written, {file: content.decode() for file, content in build.written.items()})
        table, _, rest = as_settings(build, folder / "ops", written).partition("\n\n")
        packages += table.splitlines()[bool(packages) :]
        texts.append(rest)
    texts.insert(1, "\n".join([*packages, "", ""]))
    write_clip(write(folder / "ops", {"pyproject.toml": "\n".join(texts)}) / "native")
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {str(path): path.read_text() for path in folder.rglob("*") if path.is_file()}


def test_what_their_builds_say(environment: Environment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://localhost:1")
    tree = write(tmp_path / "alpha", ALPHA).resolve()
    before = contents(tree)
    build = their_build(tree, environment.python)
    assert contents(tree) == before and build.written == {"alpha/version.py": b"__version__ = '1.5'\n"}
    (extension,) = build.extensions
    assert build.licenses == (tree / "LICENSE",)
    assert (extension.name, extension.suffix) == ("alpha._C", "")
    assert extension.sources == (tree / "csrc/ops.cpp", tree / "csrc/deep/module.cpp")
    assert (extension.include_dirs, extension.define) == ((tree / "include",), ("ALPHA_STEP=2",))
    assert extension.cxx_flags == ("-UNO_SUCH_MACRO", "-O1", "-std=c++14")
    assert not (extension.nvcc_flags or extension.link_flags or extension.libraries or extension.library_dirs)
    assert build.packages == {"alpha": tree / "alpha"}
    tree = write(tmp_path / "beta", BETA).resolve()
    build = their_build(tree, environment.python)
    assert (build.extensions[0].suffix, build.packages) == (".so", {"beta": tree / "python/beta"})


@pytest.mark.parametrize(
    ("setup", "said"),
    [
        ("import urllib.request\nurllib.request.urlopen('http://localhost:9/')", "urlopen error"),
        ("raise RuntimeError('set ALPHA_HOME')", "RuntimeError: set ALPHA_HOME"),
        ("from setuptools import setup\nsetup(name='x')", "its setup.py has no extensions"),
        ("", "it does not call setup()"),
    ],
)
def test_builds_that_cannot_be_asked(environment: Environment, tmp_path: Path, setup: str, said: str) -> None:
    write(tmp_path, {"setup.py": setup, "csrc/a.cpp": ""})
    with pytest.raises(UsageError) as caught:
        their_build(tmp_path, environment.python)
    assert said in caught.value.what and "\n" not in caught.value.what
    assert caught.value.what.startswith(str(tmp_path)) and "by hand" in caught.value.todo


def test_develop(folder: Path, stock: Environment) -> None:
    before = [contents(folder / name) for name in ("alpha", "beta")]
    assert "of 3 sources" in make("develop", stock, "--native", folder / "ops/native")
    assert stock.run(VALUES).stdout.strip() == EXPECTED
    # Their trees have nothing of ours, not even bytecode.
    stock.run("import alpha, beta", PYTHONPYCACHEPREFIX="")
    assert [contents(folder / name) for name in ("alpha", "beta")] == before
    # What objects say about their sources does not depend on where these lie.
    assert stock.run("from alpha import _C; print(_C.where())").stdout.strip() == "alpha._C/0/deep/module.cpp"
    # Their Python is theirs; an edit needs no build.
    write(folder, {"alpha/alpha/deep/__init__.py": "name = 'edited'\n"})
    assert "edited" in stock.run(VALUES).stdout
    write(folder / "ops", {"native/SoftClip.cpp": CLIP_EDITED})
    assert "compile and link extensions: 0 of 3 sources" in make("develop", stock, "--native", folder / "ops/native")
    write(folder, {"alpha/include/alpha.h": f"{ALPHA['include/alpha.h']}#undef ALPHA_STEP\n#define ALPHA_STEP 5\n"})
    assert "compile and link extensions: 2 of 3 sources" in make("develop", stock, "--native", folder / "ops/native")
    assert stock.run("import torch, alpha; print(torch.ops.alpha.twice(torch.ones(1)).item())").stdout == "11.0\n"
    write(folder / "alpha", ALPHA)


def test_copies_are_refused(folder: Path, stock: Environment) -> None:
    make("develop", stock, "--native", folder / "ops/native")
    (library,) = stock.packages.glob("torch.graft/*/alpha/_C.*.so")
    tree = folder / "alpha"
    # Their package, imported from their tree, takes the library from beside torch.
    code = (
        f"import sys; sys.path.insert(0, {str(tree)!r})\nimport torch, alpha\nprint(alpha.__file__, alpha._C.__file__)"
    )
    assert stock.run(code).stdout.split() == [f"{tree}/alpha/__init__.py", str(library)]
    copy = tree / "alpha" / library.name
    shutil.copyfile(library, copy)
    said = f"alpha._C: {copy} is another copy of what this torch was built with, {library}; delete that copy"
    for act in ("import alpha", f"torch.ops.load_library({str(copy)!r})"):
        tried = "\n".join([*code.splitlines()[:1], "import torch", f"try: {act}", "except ImportError as e: print(e)"])
        assert stock.run(tried).stdout.strip() == said
    copy.unlink()


@pytest.mark.slow
def test_thin_wheel(folder: Path, stock: Environment) -> None:
    wheel = thin_wheel(stock, folder / "ops/native", folder / "out", "--name", "adopted")
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        (licence,) = (name for name in names if name.endswith("licenses/alpha/LICENSE"))
        assert archive.read(licence) == b"Anyone may use alpha.\n"
    assert "alpha/deep/__init__.py" in names and "beta/_C.so" in names and not any("csrc" in name for name in names)
    (module,) = (name for name in names if name.startswith("alpha/_C."))
    assert f".cpython-{INTERPRETER.removeprefix('cp')}-" in module
    stock.pip("install", "--no-deps", wheel)
    for name in ("alpha", "beta"):
        shutil.rmtree(folder / name)
    try:
        assert stock.run(VALUES).stdout.strip() == EXPECTED
    finally:
        stock.pip("uninstall", "-y", "adopted")
