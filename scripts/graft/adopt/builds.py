"""Read the build settings of an extension, from setup.py or CMake: its sources, flags and libraries, and the names of
its files. A setup.py runs in a child process. Nothing is built.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ..core.errors import UsageError
from ..core.files import write_atomically
from ..core.keys import COMPILED, FILE
from ..core.process import environment
from ..core.wording import quoted
from .cmake import CONFIGURE, units_of_cmake

_CHILD = Path(__file__).with_name("setup_child.py")

# The time limit of a setup.py in seconds. It may probe the machine.
_LIMIT = 600

# Libraries that every build with torch links: torch's own, and the CUDA runtime.
_OF_TORCH = re.compile(r"(:lib)?((c10|torch|shm)(_\w+)?|cudart(_static)?)(\.(so(\.\d+)*|a))?")

# A requirement of torch.
_IS_TORCH = re.compile(r"torch(?![\w.-])", re.I)

# The folders where a tree may have its CMakeLists.txt.
_FOLDERS = (".", "csrc", "src", "lib", "cpp", "cxx", "python")

# Proxy settings, which the child process does not get: a build's settings are on this machine.
_NETWORK = re.compile(r"(?i)(https?|ftp|all|no)_proxy")

_BY_HAND = f"write [[tool.graft.extensions]] in {FILE} by hand; scripts/guides/settings.md shows one"


@dataclass(frozen=True)
class TheirExtension:
    """The settings with which a build compiles and links an extension.

    Args:
        name: the name by which Python imports it: ``torchvision._C``.
        suffix: the suffix of its file; empty for the default suffix of the Python that it is built for.
        sources: the files that are compiled.
        include_dirs: the folders of headers, without torch's and Python's.
        define: macros, each NAME or NAME=VALUE.
        cxx_flags: flags of the C++ compiler.
        nvcc_flags: flags of nvcc.
        link_flags: other flags of the linker.
        libraries: the libraries to link, without torch's.
        library_dirs: the folders of libraries.
    """

    name: str
    suffix: str = ""
    sources: tuple[Path, ...] = ()
    include_dirs: tuple[Path, ...] = ()
    define: tuple[str, ...] = ()
    cxx_flags: tuple[str, ...] = ()
    nvcc_flags: tuple[str, ...] = ()
    link_flags: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    library_dirs: tuple[Path, ...] = ()


@dataclass(frozen=True)
class TheirBuild:
    """The build settings of a source tree.

    Args:
        tree: the source tree.
        extensions: the extensions that it compiles.
        packages: the folder of each Python package, or the file of a module, by name; a subpackage only if it is not in
            the folder of its package.
        licenses: its license files.
        written: the files that its setup.py wrote, by path in the tree. The tree itself was not changed.
        requires: the distributions that its packages need, without torch, which a delivery decides.
    """

    tree: Path
    extensions: tuple[TheirExtension, ...]
    packages: Mapping[str, Path]
    licenses: tuple[Path, ...]
    written: Mapping[str, bytes]
    requires: tuple[str, ...] = ()


def their_build(tree: Path, python: str | Path) -> TheirBuild:
    """Return the build settings of a source tree, read with a Python that has torch. This runs the tree's own code.

    Raises:
        UsageError: the build cannot be read, or its setup.py fails. The message has the last line that it printed.
    """
    tree = tree.resolve()
    has_setup = (tree / "setup.py").is_file() or "setuptools" in _text(tree / FILE)
    build = _of_setup(tree, python) if has_setup else None
    if build and build.extensions and all(each.sources for each in build.extensions):
        return build
    if units := units_of_cmake(tree):
        return _with_cmake(tree, build, units)
    what, todo = _why_not(tree, build)
    raise UsageError(f"{tree}: {what}", todo=todo)


def _why_not(tree: Path, build: TheirBuild | None) -> tuple[str, str]:
    """Return why the build of a tree cannot be read, and the remedy."""
    if folder := next((each for each in _FOLDERS if (tree / each / "CMakeLists.txt").is_file()), ""):
        todo = f"run `{CONFIGURE.format(source=folder)}` there, or {_BY_HAND}"
        return "CMake builds it, and there is no compile_commands.json", todo
    if build and build.extensions:
        what = f"its build compiles {build.extensions[0].name} with other tools"
        return f"{what}, and there is no compile_commands.json", _BY_HAND
    kinds = {path.suffix for path in tree.rglob("*") if path.suffix in COMPILED}
    if kinds == {".cu"}:
        return "all its sources are for CUDA, and so its build has no extensions here", "adopt it where CUDA is"
    if kinds:
        return "its setup.py has no extensions" if build else "it has no setup.py", _BY_HAND
    package = next(iter(build.packages if build else _packages_in(tree)), "their_package")
    todo = f"install it, and give the package: `pip install {tree}`, `graft adopt {package}`"
    return "it has no sources to compile", todo


def _of_setup(tree: Path, python: str | Path) -> TheirBuild:
    with TemporaryDirectory(prefix="graft-") as folder:
        overlay = Path(folder, "written")
        overlay.mkdir()
        said = _asked(tree, python, Path(folder, "said.json"), overlay)
        written = {
            path.relative_to(overlay).as_posix(): path.read_bytes()
            for path in sorted(overlay.rglob("*"))
            if path.is_file() and not path.relative_to(overlay).parts[0].startswith(("build", "dist"))
        }
    own = [Path(each) for each in said["own"]]
    return TheirBuild(
        tree,
        tuple(_extension(tree, each, own) for each in said["extensions"]),
        _tops({name: Path(path) for name, path in (said["packages"] | said["modules"]).items()}),
        tuple(_licenses(tree, said["licenses"])),
        written,
        tuple(each for each in said["requires"] if not _IS_TORCH.match(each)),
    )


def _asked(tree: Path, python: str | Path, result: Path, overlay: Path) -> dict[str, Any]:
    """Run ``setup_child.py`` in the tree. Return the description that it writes."""
    file = tree / ("setup.py" if (tree / "setup.py").is_file() else FILE)
    kept = {name: text for name, text in environment().items() if not _NETWORK.fullmatch(name)}
    kept |= {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONWARNINGS": "ignore", "PIP_NO_INDEX": "1", "MPLBACKEND": "agg"}
    kept |= {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    kept.pop("PYTHONPATH", None)  # the builder's own
    command = [str(python), str(_CHILD), str(result), str(overlay)]
    # A setup.py may call git, whose changes bypass the overlay: this file is restored below.
    config = tree / ".git/config"
    before = config.read_bytes() if config.is_file() else None
    try:
        done = subprocess.run(
            command,
            cwd=tree,
            env=kept,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            timeout=_LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise UsageError(f"{file}: it did not end within {_LIMIT} seconds", todo=_BY_HAND) from error
    except OSError as error:
        raise UsageError(f"{python}: {error.strerror or error}", todo="name the Python of an environment") from error
    finally:
        if before is not None and config.read_bytes() != before:
            write_atomically(config, before)
    if done.returncode == 0 and result.is_file():
        described: dict[str, Any] = json.loads(result.read_text(encoding="utf-8"))
        return described
    lines = [line.strip() for line in done.stdout.splitlines() if line.strip()]
    said = quoted(lines[-1]) if lines else f"it ended with exit code {done.returncode}"
    for_cuda = "it builds for CUDA, which is not here: set what makes it build for CPUs alone"
    todo = for_cuda if "CUDA_HOME" in said else "set what its build asks for"
    raise UsageError(f"{file}: {said}", todo=f"{todo}, or {_BY_HAND}")


def _extension(tree: Path, said: Mapping[str, Any], own: Sequence[Path]) -> TheirExtension:
    """Return the settings of an extension, without the folders and libraries that every build with torch uses."""

    def others(folders: Iterable[str]) -> list[Path]:
        """Return the folders that exist and are not in ``own``. Some tools print an error about a missing folder."""
        every = [path for each in folders if (path := Path(each)).is_dir()]
        return [each for each in every if not any(each.is_relative_to(folder) for folder in own)]

    last = said["name"].rpartition(".")[2]
    suffix = Path(said["path"]).name.removeprefix(last)
    define = [name if value is None else f"{name}={value}" for name, value in said["define"]]
    cxx, of_cxx = _without_folders(tree, said["cxx"])
    nvcc, of_nvcc = _without_folders(tree, said["nvcc"])
    link = _Link(tree, said["link"])
    return TheirExtension(
        said["name"],
        "" if ".cpython-" in suffix else suffix,
        tuple(Path(each) for each in said["sources"]),
        tuple(dict.fromkeys([*others(said["include_dirs"]), *others([*of_cxx, *of_nvcc])])),
        tuple(define),
        (*(f"-U{name}" for name in said["undef"]), *cxx),
        tuple(nvcc) if any(each.endswith(".cu") for each in said["sources"]) else (),
        tuple(link.flags),
        tuple(each for each in dict.fromkeys([*said["libraries"], *link.libraries]) if not _OF_TORCH.fullmatch(each)),
        tuple(dict.fromkeys(others([*said["library_dirs"], *link.folders]))),
    )


def _without_folders(tree: Path, flags: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the flags without folders of headers, and these folders. Paths become absolute: Graft builds elsewhere."""
    words, folders, waiting = [], [], iter(flags)
    for word in waiting:
        if found := re.fullmatch(r"(-I|-isystem)(.*)", word, re.S):
            folders.append(os.path.normpath(tree / (found[2].strip() or next(waiting, "."))))
        elif word == "-include":
            header = next(waiting, "")
            words += [word, os.path.normpath(tree / header) if (tree / header).is_file() else header]
        else:
            words.append(word)
    return words, folders


class _Link:
    """The flags of the linker: ``libraries``, their ``folders``, and other ``flags``."""

    def __init__(self, tree: Path, words: Iterable[str]) -> None:
        self.flags: list[str] = []
        self.libraries: list[str] = []
        self.folders: list[str] = []
        waiting = iter(words)
        for word in waiting:
            if word.startswith("-l"):
                self.libraries.append(word[2:] or next(waiting, ""))
            elif word.startswith("-L"):
                self.folders.append(os.path.normpath(tree / (word[2:] or next(waiting, "."))))
            elif word != "-s":
                self.flags.append(word)


def _tops(packages: Mapping[str, Path]) -> dict[str, Path]:
    """Return the packages without subpackages that lie in the folder of their package, where Python finds them."""
    found: dict[str, Path] = {}
    for name, path in sorted(packages.items()):
        above = next((each for each in found if name.startswith(f"{each}.")), "")
        below = name.removeprefix(f"{above}.").split(".")
        if not above or path.with_suffix("") != found[above].joinpath(*below):
            found[name] = path
    return found


def _licenses(tree: Path, named: Iterable[str]) -> list[Path]:
    given = [tree / name for name in named]
    usual = [path for path in sorted(tree.iterdir()) if re.match(r"(?i)(licen[cs]e|copying|notice)", path.name)]
    return [path for path in given or usual if path.is_file()]


def _with_cmake(tree: Path, build: TheirBuild | None, units: Mapping[str, Mapping[str, Any]]) -> TheirBuild:
    """Return the build of CMake's extensions, with their names from setup.py if it has as many extensions."""
    packages = build.packages if build else _packages_in(tree)
    top = next(iter(packages), "")
    named = [each.name for each in build.extensions] if build and len(build.extensions) == len(units) else []
    extensions = []
    for number, (target, unit) in enumerate(units.items()):
        guessed = f"{top}.{target}" if top else target
        given = {"name": named[number] if named else guessed, "path": f"{unit['file']}", **unit}
        last = given["name"].rpartition(".")[2]
        given["path"] = f"{last}{''.join(Path(given['path']).suffixes) or '.so'}"
        extensions.append(_extension(tree, given, [Path(each) for each in unit["own"]]))
    return TheirBuild(
        tree,
        tuple(extensions),
        packages,
        build.licenses if build else tuple(_licenses(tree, ())),
        build.written if build else {},
        build.requires if build else (),
    )


def _packages_in(tree: Path) -> dict[str, Path]:
    """Return the Python packages in the tree, ``src`` and ``python``, without tests, docs and examples."""
    places = [
        folder for top in (tree, tree / "src", tree / "python") if top.is_dir() for folder in sorted(top.iterdir())
    ]
    found = {place.name: place for place in places if (place / "__init__.py").is_file()}
    return {name: place for name, place in found.items() if name not in ("test", "tests", "docs", "examples")}


def _text(file: Path) -> str:
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""


def as_settings(build: TheirBuild, folder: Path, written: Path | None = None) -> str:
    """Return the build as TOML that follows the table ``[tool.graft]`` in the pyproject.toml of ``folder``.

    If the caller has stored the files that the build wrote in the folder ``written``, the packages include them.
    """

    def place(path: Path) -> str:
        is_near = path.is_relative_to(build.tree) or path.is_relative_to(folder)
        return os.path.relpath(path, folder) if is_near else str(path)

    parts = []
    if build.packages:
        lines = [f"{_key(name)} = {_value(value)}" for name, value in _packages(build, place, written).items()]
        parts.append("\n".join(["[tool.graft.packages]", *lines]))
    for number, each in enumerate(build.extensions):
        values: dict[str, Sequence[str] | str] = {
            "name": each.name,
            "suffix": each.suffix,
            "sources": [*map(place, each.sources)],
            "include-dirs": [*map(place, each.include_dirs)],
            "define": each.define,
            "cxx-flags": _with_headers(each.cxx_flags, place),
            "nvcc-flags": _with_headers(each.nvcc_flags, place),
            "link-flags": each.link_flags,
            "libraries": each.libraries,
            "library-dirs": [*map(place, each.library_dirs)],
            "license-files": [*map(place, build.licenses)] if number == 0 else [],
        }
        lines = [f"{key} = {_value(value)}" for key, value in values.items() if value]
        parts.append("\n".join(["[[tool.graft.extensions]]", *lines]))
    return "\n\n".join(parts) + "\n"


def _with_headers(flags: Sequence[str], place: Callable[[Path], str]) -> list[str]:
    """Return the flags, with the absolute paths after -include passed through ``place``."""
    before = ("", *flags)
    return [
        place(Path(word)) if last == "-include" and Path(word).is_absolute() else word
        for last, word in zip(before, flags, strict=False)
    ]


def _packages(build: TheirBuild, place: Callable[[Path], str], written: Path | None) -> dict[str, list[str] | str]:
    """Return the folders of each package: the one with files that the build wrote, if any, and the one in the tree."""
    found: dict[str, list[str] | str] = {}
    for name, path in build.packages.items():
        below = path.relative_to(build.tree) if path.is_relative_to(build.tree) else None
        has_more = written and below and any(Path(file).is_relative_to(below) for file in build.written)
        found[name] = [place(written / below), place(path)] if written and below and has_more else place(path)
    return found


def _key(name: str) -> str:
    return name if re.fullmatch(r"[\w-]+", name) else _quoted(name)


def _value(value: Sequence[str] | str) -> str:
    """Return a string or a list of strings as TOML."""
    if isinstance(value, str):
        return _quoted(value)
    texts = [_quoted(each) for each in value]
    line = f"[{', '.join(texts)}]"
    return line if len(line) < 100 else "[\n" + "".join(f"    {each},\n" for each in texts) + "]"


def _quoted(text: str) -> str:
    """Return a string as TOML's basic string, which has JSON's escapes."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
