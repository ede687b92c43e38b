"""``python setup_child.py RESULT OVERLAY``: write the build settings of a setuptools project into RESULT, as JSON.

Runs in the folder of the project, with the Python of an environment. It runs setup.py if there is one, and builds
nothing. Files that setup.py writes below the folder go below OVERLAY instead. Uses only the standard library and
setuptools.
"""

import builtins
import io
import json
import os
import runpy
import shutil
import sys
from typing import Any


class _Given(BaseException):
    """Carries the arguments of ``setup()``. It is not an Exception, which a setup.py may catch."""


class Overlay:
    """Redirects changes of files below the folder ``tree`` to copies below ``folder``, which are then read instead. The
    tree stays as it is.
    """

    def __init__(self, tree: str, folder: str) -> None:
        self._tree, self._folder = tree, folder
        self._open, self._open_number, self._mkdir = builtins.open, os.open, os.mkdir
        self._rename, self._symlink, self._link = os.rename, os.symlink, os.link

    def install(self) -> None:
        """Replace ``open``, and the functions of ``os`` and ``shutil`` that change files."""
        builtins.open = io.open = self.open
        os.open, os.mkdir = self.open_number, self.mkdir
        vars(os).update(rename=self.move, replace=self.move, symlink=self.symlink, link=self.link)
        for name in ("remove", "unlink", "rmdir", "chmod", "chown", "utime", "truncate"):
            setattr(os, name, self._of_copies(getattr(os, name)))
        # rmtree opens folders by file descriptor, where a path below the tree is not recognized.
        shutil.rmtree = self._of_copies(shutil.rmtree)

    def open(self, file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        """Replace ``open``: write to the overlay's copy; read that copy if there is one, else the tree."""
        if "opener" not in named:
            file = self._written(file) if set(mode) & set("wax+") else self._read(file)
        return self._open(file, mode, *arguments, **named)

    def open_number(self, path: Any, flags: int, *arguments: Any, **named: Any) -> int:
        """Replace ``os.open``, as ``open`` above."""
        if named.get("dir_fd") is None:
            does_write = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            path = self._written(path) if does_write else self._read(path)
        return self._open_number(path, flags, *arguments, **named)

    def mkdir(self, path: Any, *arguments: Any, **named: Any) -> None:
        """Create a folder as ``os.mkdir`` does. A folder below the tree may exist already."""
        copy = self._copy(path)
        if copy:
            self._make_folders(copy)
        else:
            self._mkdir(path, *arguments, **named)

    def move(self, source: Any, target: Any, **named: Any) -> None:
        """Move a file or folder as ``os.replace`` does. One that is only in the tree is copied."""
        start, end = self._read(source), self._new(target)
        if self._copy(start):
            if os.path.isdir(start):
                shutil.copytree(start, end, dirs_exist_ok=True)
            else:
                shutil.copyfile(start, end)
        elif start is source and end is target:
            self._rename(source, target, **named)
        else:
            shutil.move(start, end)

    def symlink(self, source: Any, target: Any, *arguments: Any, **named: Any) -> None:
        """Create a link as ``os.symlink`` does. Below the tree, copy the file instead, since writes to a link could
        reach the tree.
        """
        end = self._new(target)
        if end is target:
            self._symlink(source, target, *arguments, **named)
            return
        start = self._read(os.path.join(os.path.dirname(os.path.abspath(os.fsdecode(target))), os.fsdecode(source)))
        if os.path.isfile(start):
            shutil.copyfile(start, end)

    def link(self, source: Any, target: Any, **named: Any) -> None:
        """Create a link as ``os.link`` does. Copy the file instead if one of the paths is below the tree."""
        start, end = self._read(source), self._new(target)
        if end is target and not self._copy(source):
            self._link(source, target, **named)
        else:
            shutil.copyfile(start, end)

    def _of_copies(self, function: Any) -> Any:
        """Wrap a function that takes a path, so that it works on the copy. It does nothing if the path is only in the
        tree.
        """

        def of_copies(path: Any, *arguments: Any, **named: Any) -> Any:
            copy = self._copy(path) if named.get("dir_fd") is None else None
            if copy and os.path.lexists(path) and not os.path.lexists(copy):
                return None
            return function(copy or path, *arguments, **named)

        return of_copies

    def _copy(self, file: Any) -> "str | None":
        """Map a path in the extension's tree to its place in the overlay, where changes go. Return None for
        another path.
        """
        if not isinstance(file, (str, bytes, os.PathLike)):
            return None
        path = os.path.abspath(os.fsdecode(file))
        if path != self._tree and not path.startswith(self._tree + os.sep):
            return None
        return os.path.normpath(os.path.join(self._folder, os.path.relpath(path, self._tree)))

    def _read(self, file: Any) -> Any:
        """Return the path to read: the copy if there is one, but the tree's folder if both are folders."""
        copy = self._copy(file)
        is_there = copy and os.path.lexists(copy) and not (os.path.isdir(copy) and os.path.isdir(file))
        return copy if is_there else file

    def _new(self, file: Any) -> Any:
        """Return the path to write a new file to, and create its folder."""
        copy = self._copy(file)
        if copy:
            self._make_folders(os.path.dirname(copy))
        return copy or file

    def _written(self, file: Any) -> Any:
        """Return the path to write to. An existing file in the tree is copied there first."""
        copy = self._new(file)
        if copy is not file and os.path.isfile(file) and not os.path.lexists(copy):
            shutil.copyfile(file, copy)
        return copy

    def _make_folders(self, folder: str) -> None:
        if not os.path.isdir(folder):
            self._make_folders(os.path.dirname(folder))
            self._mkdir(folder)


def attributes(file: str) -> Any:
    """Return the arguments that the file gives to ``setup()``; empty if there is no such file."""
    import importlib

    def setup(**given: object) -> None:
        raise _Given(given)

    # setuptools has its own distutils, in place of Python's.
    for name in ("setuptools", "distutils.core"):
        vars(importlib.import_module(name))["setup"] = setup
    if not os.path.isfile(file):
        return {}
    try:
        runpy.run_path(file, run_name="__main__")
    except _Given as given:
        return given.args[0]
    raise ValueError("it does not call setup()")


def described(given: Any) -> Any:
    """Return the build settings that these attributes, setup.cfg and pyproject.toml describe."""
    from setuptools import Distribution

    requires = given.pop("install_requires", None)
    for name in ("setup_requires", "script_args"):
        given.pop(name, None)
    distribution = Distribution(given)
    distribution.script_name = "setup.py"
    distribution.parse_config_files()
    command = distribution.get_command_obj("build_ext")
    extensions = distribution.ext_modules or []
    if extensions:
        command.ensure_finalized()
        extensions = command.extensions or extensions
    build_py = distribution.get_command_obj("build_py")
    build_py.ensure_finalized()
    metadata = distribution.metadata
    return {
        "requires": _listed(getattr(distribution, "install_requires", None) or requires or []),
        "licenses": list(getattr(metadata, "license_files", None) or []),
        "packages": {name: os.path.abspath(build_py.get_package_dir(name)) for name in distribution.packages or []},
        "modules": _modules(build_py, distribution.py_modules or []),
        "extensions": [extension(each, command) for each in extensions],
    }


def _listed(requires: Any) -> "list[str]":
    """Return requirements as a list: setup() also takes a text with one on each line."""
    lines = requires.splitlines() if isinstance(requires, str) else map(str, requires)
    return [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]


def _modules(build_py: Any, names: Any) -> Any:
    found = {}
    for name in names:
        package, _, last = name.rpartition(".")
        found[name] = os.path.abspath(os.path.join(build_py.get_package_dir(package), last + ".py"))
    return found


def extension(given: Any, command: Any) -> Any:
    """Return the sources and flags of an extension, and the path of the file that its build creates."""
    flags = given.extra_compile_args or []
    of_compilers = flags if isinstance(flags, dict) else {"cxx": flags, "nvcc": flags}
    cxx, nvcc = (list(map(str, of_compilers.get(name) or [])) for name in ("cxx", "nvcc"))
    defines = [[name, value] for name, value in given.define_macros or []]
    if getattr(given, "py_limited_api", False):  # torch's BuildExtension appends its own flag
        limited = f"-DPy_LIMITED_API={_limited()}"
        cxx, nvcc = ([each for each in words if not each.startswith("-DPy_LIMITED_API")] for words in (cxx, nvcc))
        cxx, nvcc = [*cxx, limited], [*nvcc, limited]
    name = command.get_ext_fullname(given.name)
    return {
        "name": name,
        "path": command.get_ext_filename(name),
        "sources": [os.path.abspath(each) for each in given.sources],
        "include_dirs": [os.path.abspath(each) for each in given.include_dirs or []],
        "define": defines,
        "undef": list(given.undef_macros or []),
        "cxx": cxx,
        "nvcc": nvcc,
        "link": [str(each) for each in [*(given.extra_objects or []), *(given.extra_link_args or [])]],
        "libraries": list(given.libraries or []),
        "library_dirs": [os.path.abspath(each) for each in given.library_dirs or []],
    }


def _limited() -> str:
    """Return the version of Python's limited API that torch's builds use."""
    try:
        from torch.utils.cpp_extension import min_supported_cpython

        return str(min_supported_cpython)
    except ImportError:
        return "0x03090000"


def _own() -> "list[str]":
    """Return the folders of headers and libraries that every build with torch uses: Python's, torch's and CUDA's."""
    import sysconfig

    found = {sysconfig.get_path("include"), sysconfig.get_path("platinclude"), sysconfig.get_config_var("LIBDIR")}
    try:
        import torch
        from torch.utils import cpp_extension

        found.add(os.path.dirname(torch.__file__))
        found |= {getattr(cpp_extension, name, None) for name in ("CUDA_HOME", "CUDNN_HOME")}
    except ImportError:
        pass
    return sorted(each for each in found if each)


def main(result: str, overlay: str) -> int:
    """Write the description as JSON into the file ``result``."""
    tree, write = os.getcwd(), builtins.open
    sys.argv = ["setup.py", "build_ext"]
    sys.path[0] = tree
    Overlay(tree, overlay).install()
    said = {"own": _own(), **described(attributes("setup.py"))}
    with write(result, "w", encoding="utf-8") as file:
        json.dump(said, file)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
