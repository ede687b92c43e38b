"""Run in a child process, with the Python of an environment: what a setup.py, or a pyproject.toml for setuptools, gives
to ``setup()``. Nothing is built, and what it writes below its folder goes elsewhere.

``python setup_child.py RESULT OVERLAY``, in the folder of the project. Uses only the standard library and setuptools.
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
    """What ``setup()`` was called with. Not an Exception, which a setup.py may catch."""


class Overlay:
    """What a setup.py changes below its folder ``tree``: files are written below ``folder``, and read there. What is
    only in the tree stays as it is.
    """

    def __init__(self, tree: str, folder: str) -> None:
        self._tree, self._folder = tree, folder
        self._open, self._open_number, self._mkdir = builtins.open, os.open, os.mkdir
        self._rename, self._symlink, self._link = os.rename, os.symlink, os.link

    def install(self) -> None:
        """Take the place of ``open``, and of the functions of ``os`` and ``shutil`` that change files."""
        builtins.open = io.open = self.open
        os.open, os.mkdir = self.open_number, self.mkdir
        vars(os).update(rename=self.move, replace=self.move, symlink=self.symlink, link=self.link)
        for name in ("remove", "unlink", "rmdir", "chmod", "chown", "utime", "truncate"):
            setattr(os, name, self._of_copies(getattr(os, name)))
        # It goes through folders by number, where nothing is told from the tree.
        shutil.rmtree = self._of_copies(shutil.rmtree)

    def open(self, file: Any, mode: str = "r", *arguments: Any, **named: Any) -> Any:
        """Open a file as ``open`` does."""
        if "opener" not in named:
            file = self._written(file) if set(mode) & set("wax+") else self._read(file)
        return self._open(file, mode, *arguments, **named)

    def open_number(self, path: Any, flags: int, *arguments: Any, **named: Any) -> int:
        """Open a file as ``os.open`` does."""
        if named.get("dir_fd") is None:
            does_write = flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            path = self._written(path) if does_write else self._read(path)
        return self._open_number(path, flags, *arguments, **named)

    def mkdir(self, path: Any, *arguments: Any, **named: Any) -> None:
        """Create a folder as ``os.mkdir`` does. One below the tree may be there already."""
        copy = self._copy(path)
        if copy:
            self._make_folders(copy)
        else:
            self._mkdir(path, *arguments, **named)

    def move(self, source: Any, target: Any, **named: Any) -> None:
        """Move a file or folder as ``os.replace`` does; a copy of one that is only in the tree."""
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
        """Create a link as ``os.symlink`` does; below the tree, a copy of a file, as what is written to a link would
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
        """Create a link as ``os.link`` does; a copy if one of both is below the tree."""
        start, end = self._read(source), self._new(target)
        if end is target and not self._copy(source):
            self._link(source, target, **named)
        else:
            shutil.copyfile(start, end)

    def _of_copies(self, function: Any) -> Any:
        """Return a function that does with what was written what another does with files. It does nothing with those
        that are only in the tree.
        """

        def of_copies(path: Any, *arguments: Any, **named: Any) -> Any:
            copy = self._copy(path) if named.get("dir_fd") is None else None
            if copy and os.path.lexists(path) and not os.path.lexists(copy):
                return None
            return function(copy or path, *arguments, **named)

        return of_copies

    def _copy(self, file: Any) -> "str | None":
        """Return where a path below the tree is written; None for others."""
        if not isinstance(file, (str, bytes, os.PathLike)):
            return None
        path = os.path.abspath(os.fsdecode(file))
        if path != self._tree and not path.startswith(self._tree + os.sep):
            return None
        return os.path.normpath(os.path.join(self._folder, os.path.relpath(path, self._tree)))

    def _read(self, file: Any) -> Any:
        """Return where a file is read."""
        copy = self._copy(file)
        is_there = copy and os.path.lexists(copy) and not (os.path.isdir(copy) and os.path.isdir(file))
        return copy if is_there else file

    def _new(self, file: Any) -> Any:
        """Return where a file is written that is not there yet."""
        copy = self._copy(file)
        if copy:
            self._make_folders(os.path.dirname(copy))
        return copy or file

    def _written(self, file: Any) -> Any:
        """Return where a file is written that may be there already."""
        copy = self._new(file)
        if copy is not file and os.path.isfile(file) and not os.path.lexists(copy):
            shutil.copyfile(file, copy)
        return copy

    def _make_folders(self, folder: str) -> None:
        if not os.path.isdir(folder):
            self._make_folders(os.path.dirname(folder))
            self._mkdir(folder)


def attributes(file: str) -> Any:
    """Return what ``setup()`` is called with in the file; nothing if there is no such file."""
    import importlib

    def setup(**given: object) -> None:
        raise _Given(given)

    # setuptools has distutils, too, and takes the place of Python's own.
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
    """Return what the build would do with these attributes, and with those of setup.cfg and pyproject.toml."""
    from setuptools import Distribution

    for name in ("setup_requires", "install_requires", "script_args"):
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
        "licenses": list(getattr(metadata, "license_files", None) or []),
        "packages": {name: os.path.abspath(build_py.get_package_dir(name)) for name in distribution.packages or []},
        "modules": _modules(build_py, distribution.py_modules or []),
        "extensions": [extension(each, command) for each in extensions],
    }


def _modules(build_py: Any, names: Any) -> Any:
    found = {}
    for name in names:
        package, _, last = name.rpartition(".")
        found[name] = os.path.abspath(os.path.join(build_py.get_package_dir(package), last + ".py"))
    return found


def extension(given: Any, command: Any) -> Any:
    """Return what is compiled and linked for an extension, and where its build puts it."""
    flags = given.extra_compile_args or []
    of_compilers = flags if isinstance(flags, dict) else {"cxx": flags, "nvcc": flags}
    cxx, nvcc = (list(map(str, of_compilers.get(name) or [])) for name in ("cxx", "nvcc"))
    defines = [[name, value] for name, value in given.define_macros or []]
    if getattr(given, "py_limited_api", False):  # torch's BuildExtension puts its own behind theirs
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
    """Return the folders of headers and libraries that each build with torch has anyhow."""
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
