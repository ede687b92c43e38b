"""The keys of ``[tool.graft]`` in pyproject.toml. Uses only the standard library."""

from __future__ import annotations

from typing import NamedTuple

FILE = "pyproject.toml"

# The suffixes of sources that can be compiled, in any folder.
COMPILED = (".cpp", ".cu", ".cc", ".cxx", ".c++", ".C")


class Key(NamedTuple):
    """A key of the table: the type of its value, and its purpose."""

    holds: str
    help: str


_FOLDERS, _GLOBS, _FLAGS = "a folder, or a list", "a glob, or a list", "a flag, or a list"

KEYS = {
    "native": Key(_FOLDERS, "the native folders; by default that of pyproject.toml"),
    "torch": Key("a version, or a list", "the versions of torch that a project is built for"),
    "sources": Key(_GLOBS, f"more sources, below pyproject.toml: {', '.join(COMPILED)}"),
    "exclude": Key(_GLOBS, "sources that are not compiled"),
    "include-dirs": Key(_FOLDERS, "where headers are searched, after PyTorch's and before the system's"),
    "define": Key("a macro, or a list", "NAME or NAME=VALUE, for all compilers"),
    "cxx-flags": Key(_FLAGS, "for g++; never for the link"),
    "nvcc-flags": Key(_FLAGS, "for nvcc"),
    "cpu-flags": Key("a table: glob = flags", "for files that need more of the processor, such as -mavx512bf16"),
    "libraries": Key("a name, or a list", "what to link, as with -l; wheels contain what not every Linux has"),
    "library-dirs": Key(_FOLDERS, "where libraries are searched, before the system's"),
    "exclude-libraries": Key(_GLOBS, "libraries that the wheel does not contain, such as libcuda.so.*"),
    "license-files": Key(_GLOBS, "licenses that go into the wheel, such as those of the libraries"),
    "packages": Key("a table: name = folder", "Python packages that are delivered beside torch"),
    "keep": Key("a name, or a list", "functions of PyTorch's FunctionsManual.cpp that go on calling PyTorch's own"),
    "releases": Key("a table: part = versions", 'the releases that a file or a function of formulas is for: "<2.15"'),
    "extensions": Key("tables", "extensions that stay libraries of their own"),
}

# The keys of an extension alone: a table in the list `extensions`.
OF_EXTENSIONS = {
    "name": Key("a name with dots", "by which Python imports it: their_package._C"),
    "suffix": Key("a text", "the end of its file's name, such as .so or .abi3.so; by default that of Python"),
    "link-flags": Key(_FLAGS, "for its link"),
}

# The keys that extensions share with [tool.graft]. Their paths may lead out of the folder of pyproject.toml.
SHARED_WITH_EXTENSIONS = (
    *("sources", "exclude", "include-dirs", "define", "cxx-flags", "nvcc-flags"),
    *("libraries", "library-dirs", "exclude-libraries", "license-files"),
)
