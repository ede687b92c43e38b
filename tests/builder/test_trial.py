"""The import that is tried before a tree is used. The torch is a few files, and Python runs without its ``site``."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from graft import verbs
from graft.base.installed import Environment
from graft.core.errors import BuildError, UsageError
from graft.core.layout import PACKAGE
from graft.deliver.develop import use_tree, write_tree
from graft.deliver.trial import require_import
from graft.inputs.merge import MARK
from graft.inputs.native import load_natives
from helpers import Capture, Patch, refused, write

SHIPPED = PACKAGE / "deliver/shipped"
UPSTREAM = {
    "torch/__init__.py": "from . import version, _meta_registrations\n",
    "torch/version.py": "__version__ = '2.10.0'\n",
    "torch/_meta_registrations.py": "def register_meta(op):\n    return lambda function: function\n",
    "torchgen/model.py": "",
}
FOLDER = {
    "native_functions.yaml": "",
    "python/_meta_registrations.py": "from .own import right\n\n\n@register_meta(1)\ndef meta(): ...\n",
    "python/own.py": "right = 1\n",
}


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    packages = write(tmp_path / "site-packages", UPSTREAM)
    return Environment(sys.executable, packages, packages)


def build(environment: Environment, folder: Path, library: str = "") -> Path:
    """Write the tree of a folder, and use it if it can be imported."""
    native = load_natives([folder])
    files = {"torch/version.py": f"__version__ = '{library}'\n".encode(), "torch/lib/libtorch.so": library.encode()}
    for name in native.python:
        path = f"torch/{name.relative_to('python')}"
        text = (folder / name).read_text()
        files[path] = (UPSTREAM[path] + MARK + text if path in UPSTREAM else text).encode()
    base: Any = SimpleNamespace(cuda="", libraries=environment.site)
    tree = write_tree(environment, base, [folder], files)
    require_import(environment, tree, native)
    use_tree(environment, tree)
    return tree


@pytest.mark.parametrize(
    ("name", "old", "new", "expected"),
    [
        ("_meta_registrations.py", "@register_meta", "@register_mta", "4: NameError: name 'register_mta' is not def"),
        ("own.py", "right = 1", "from torch import nothing", "1: ImportError: cannot import name 'nothing' from "),
    ],
)
def test_error_names_the_line_of_the_folder(
    environment: Environment, tmp_path: Path, name: str, old: str, new: str, expected: str
) -> None:
    folder = write(tmp_path / "ops", FOLDER)
    pth = environment.packages / "torch_graft.pth"
    build(environment, folder)
    before = pth.read_text()
    (folder / "python" / name).write_text(FOLDER[f"python/{name}"].replace(old, new))
    for _ in range(2):
        error = refused(BuildError, build, environment, folder)
        assert error.what.startswith(f"{folder}/python/{name}:{expected}")
        assert pth.read_text() == before


def test_module_that_torch_imports_later_is_imported(environment: Environment, tmp_path: Path) -> None:
    write(environment.site, {"torch/later.py": "known = 1\n", "torch/package/__init__.py": ""})
    texts = {"python/later.py": "unknown\n", "python/package/__init__.py": "right = 1\n"}
    folder = write(tmp_path / "ops", FOLDER | texts)
    error = refused(BuildError, build, environment, folder)
    assert error.what == f"{folder}/python/later.py:1: NameError: name 'unknown' is not defined"
    assert error.cause == "`import torch.later` fails with this"
    write(folder, {"python/later.py": "known = 2\n"})
    build(environment, folder)


def test_error_elsewhere_is_shown_whole(environment: Environment, tmp_path: Path) -> None:
    with pytest.raises(BuildError) as caught:
        build(environment, write(tmp_path / "ops", FOLDER), "'; raise OSError('no such library') #")
    assert caught.value.what.startswith("Traceback ")
    assert caught.value.what.endswith("\nOSError: no such library")


def test_torch_that_fails_by_itself_is_no_error_of_the_folder(environment: Environment, tmp_path: Path) -> None:
    """What it needs may be in PYTHONPATH, which the trial does not have."""
    (environment.site / "torch/__init__.py").write_text("import in_pythonpath\n")
    build(environment, write(tmp_path / "ops", FOLDER))


def test_environment_that_cannot_be_written_to_is_refused_before_anything_is_built(
    environment: Environment, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(verbs, "find_environment", lambda _: environment)
    monkeypatch.setattr("os.access", lambda *_: False)
    request: Any = SimpleNamespace(python="python", watch=False)
    with pytest.raises(UsageError, match="cannot be written to"):
        verbs.develop(request, Namespace(editor=False))


LOADING = """
import os, sys
if os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "1":
    sys.stderr.write("a line of another\\n")
    sys.path.append(os.path.abspath(f"{__file__}/../../../.."))  # site-packages
    import thin
    thin.autoload()
"""


def test_thin_wheel_that_is_not_loaded_is_told(
    environment: Environment, tmp_path: Path, capsys: Capture, monkeypatch: Patch
) -> None:
    """What PyTorch loads is loaded, also where this process is to have none of it."""
    monkeypatch.setenv("TORCH_DEVICE_BACKEND_AUTOLOAD", "0")
    texts = {name: (SHIPPED / file).read_text() for name, file in (("__init__", "package.py"), ("_load", "load.py"))}
    write(environment.site, {f"thin/{name}.py": text for name, text in texts.items()})
    write(environment.site, {"torch/__init__.py": UPSTREAM["torch/__init__.py"] + LOADING})
    build(environment, write(tmp_path / "ops", FOLDER))
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("thin: its operators were not added to torch: FileNotFoundError: ")


def test_same_python_is_not_tried_again(environment: Environment, tmp_path: Path) -> None:
    folder = write(tmp_path / "ops", FOLDER)
    build(environment, folder)
    nowhere = Environment("/nowhere/python", environment.packages, environment.site)
    build(nowhere, folder, "an edited kernel")
