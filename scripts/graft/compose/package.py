"""Compose the files that add operators to an installed torch: the package of a thin wheel, which ``import torch``
loads, and the files that a running process loads.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

from ..base.base import Base
from ..codegen.description import NAMESPACES
from ..core.files import files_below
from ..inputs.snapshot import Snapshot
from .appending import appended_texts, files_extended
from .composition import ANNOTATED, Composition, Made
from .inlined import facts_of
from .several import BUILDS, folder_of

_CODECACHE = "torch/_inductor/codecache.py"

_SHIPPED = Path(__file__).resolve().parent.parent / "deliver/shipped"

# The name of the delivery in a note, for `python -m torch._graft`.
THIN = "thin wheel"

# The libraries whose sizes and build-ids identify the torch that the package was built for.
_TOLD_BY = ("libtorch_cpu.so", "libtorch_python.so", "libtorch_cuda.so", "libc10.so")


@dataclass(frozen=True)
class Extending:
    """The texts that extend an installed torch, by their path beside the library, and the note that lists them."""

    texts: Mapping[str, str]
    note: Mapping[str, Any]


def extending(base: Base, made: Made, given: Mapping[str, str], name: str, delivery: str) -> Extending:
    """Return the texts that extend the torch ``base``, and their note. ``given`` has the appended texts, by path."""
    own = {_CODECACHE: _shipped("codecache.py")} if delivery == THIN else {}
    if made.description.annotated:
        own[ANNOTATED] = f"annotated_args.update({{\n{''.join(made.description.annotated)}}})\n"
    texts = {**given} | {path: f"{given[path]}\n{text}" if path in given else text for path, text in own.items()}
    texts = {path: text for path, text in texts.items() if path.endswith(".py")}
    places = {path: f"{'behind' if (base.tree / path).is_file() else 'new'}/{path}" for path in texts}
    behind, new = (
        {module_of(path): place for path, place in places.items() if place.startswith(kind)}
        for kind in ("behind/", "new/")
    )
    note: dict[str, Any] = {
        "delivery": delivery,
        "name": name,
        "base": base.version,
        "hash": made.hash_,
        "operators": made.description.operators,
        "replaced": made.description.replaced_parts,
        "extended": [path for path in files_extended(base.tree, made.natives) if path in texts],
        "owners": sorted({namespace.attribute for namespace in NAMESPACES}),
        "behind": behind,
        "new": new,
        "stars": star_importers(base.tree, behind),
        "folders": {},
    }
    files = {places[path]: text for path, text in texts.items()}
    return Extending({**files, "_added_operators.py": made.description.module()}, note)


def compose_thin(base: Base, made: Made, name: str, requires: str, platform: str) -> dict[str, bytes]:
    """Compose the files of a thin wheel for one torch.

    Args:
        base: the torch that it is for.
        made: the linked build.
        name: the name of its package.
        requires: the version of torch that it needs, as reported by pip.
        platform: the platform tag of the libraries.
    """
    given = appended_texts(made.natives, made.description)
    extended = extending(base, made, given, name, THIN)
    libraries = {each: base.libraries / each for each in _TOLD_BY}
    # The package compares this with the installed torch.
    build = {
        "folder": folder_of(requires),
        "requires": requires,
        "commit": base.commit,
        "libraries": {each: _identity(path) for each, path in libraries.items()},
        "names": [each for each in made.description.public if "." not in each],
        "platform": platform,
    }
    own = {**extended.texts, "note.json": json.dumps({**extended.note, "extension": base.extension}, indent=1)}
    headers = made.generated / "torch/include"
    own |= {
        f"include/{path}": (headers / path).read_text(encoding="utf-8")
        for path in map(Path.as_posix, files_below(headers))
        if path.startswith("ATen/ops/")
    }
    files = {f"{build['folder']}/{path}": text for path, text in own.items()} | {
        "__init__.py": _shipped("package.py"),
        "_load.py": _shipped("load.py"),
        "_publish.py": _shipped("publish.py"),
        f"{name}Config.cmake": _shipped("config.cmake"),
        BUILDS: json.dumps([build], indent=1),
    }
    composed = {f"{name}/{path}": text.encode("utf-8") for path, text in files.items()}
    composed |= {path: library.read_bytes() for path, library in made.libraries.items()}
    return composed | _stubs(base, made, given)


def compose_loaded(
    base: Base, made: Made, name: str, snapshot: Snapshot, flags: Sequence[str], owner: str
) -> dict[str, bytes]:
    """Compose the files that a running process loads.

    Args:
        base: the torch of the process.
        made: the linked build.
        name: the name of the load.
        snapshot: the inputs of the build.
        flags: the flags that the user added for compilers.
        owner: identifies the builds of sources that are given as texts; else empty.
    """
    extended = extending(base, made, appended_texts(made.natives, made.description), name, "load")
    texts = json.dumps(sorted(extended.texts.items()))
    note = {
        **extended.note,
        "generated": hashlib.sha256(f"{snapshot.stamp_of_generated}{texts}".encode()).hexdigest(),
        "facts": facts_of(made.natives),
        "folders": snapshot.hashes(),
        "flags": list(flags),
        "settings": [text for folder in snapshot.read.folders for text in folder.settings.stamp],
        "libraries": snapshot.libraries.digest,
        "owner": owner,
        "entries": made.description.entries,
        "calls": snapshot.declared,
    }
    files = {**extended.texts, "note.json": json.dumps(note, indent=1)}
    composed = {path: text.encode("utf-8") for path, text in files.items()}
    return composed | {Path(path).name: library.read_bytes() for path, library in made.libraries.items()}


def _stubs(base: Base, made: Made, texts: Mapping[str, str]) -> dict[str, bytes]:
    """Return a partial stub package (PEP 561). For files that it lacks, type checkers use torch's."""
    composition = Composition(base.tree, {}, made.generated)
    composition.insert(made.natives, made.description)
    composition.append({path: text for path, text in texts.items() if path.endswith(".pyi") or _is_public(path)})
    stubs = {path: text for path, text in composition.files.items() if path.endswith(".pyi")}
    # If torch has no stub, type checkers read the module itself, so the module serves as the stub.
    stubs |= {
        f"{path}i": text
        for path, text in composition.files.items()
        if path in texts and _is_public(path) and f"{path}i" not in stubs
    }
    return {
        "torch-stubs/py.typed": b"partial\n",
        **{f"torch-stubs/{path.removeprefix('torch/')}": text for path, text in stubs.items()},
    }


def _identity(path: Path) -> list[int | str] | None:
    """Return the size of a library, and a hash of its start, which holds its build-id. ``load.py`` compares both."""
    if not path.is_file():
        return None
    with path.open("rb") as file:
        return [path.stat().st_size, hashlib.sha256(file.read(4096)).hexdigest()]


def _is_public(path: str) -> bool:
    """Return whether a path is the Python file of a public module."""
    names = path.removesuffix(".py").split("/")
    return path.endswith(".py") and not any(name.startswith("_") and name != "__init__" for name in names)


def module_of(path: str) -> str:
    """Return the name of the module in a file: ``torch.nn`` for ``torch/nn/__init__.py``."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def star_importers(tree: Path, modules: Iterable[str]) -> Mapping[str, list[str]]:
    """Map each of ``modules`` to the modules of torch that import ``*`` from it, directly or indirectly."""
    direct = _direct_star_importers(tree)
    found = {}
    for module in modules:
        reached: list[str] = []
        waiting = [module]
        while waiting:
            more = [each for each in direct.get(waiting.pop(), ()) if each not in reached]
            reached += more
            waiting += more
        if reached:
            found[module] = reached
    return found


@functools.cache
def _direct_star_importers(tree: Path) -> Mapping[str, list[str]]:
    direct: dict[str, list[str]] = {}
    for path in sorted((tree / "torch").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "import *" not in text:
            continue
        relative = path.relative_to(tree)
        for node in ast.walk(ast.parse(text)):  # the import may be below an `if`
            if isinstance(node, ast.ImportFrom) and node.names[0].name == "*":
                source = resolve_name("." * node.level + (node.module or ""), ".".join(relative.parts[:-1]))
                direct.setdefault(source, []).append(module_of(relative.as_posix()))
    return direct


def _shipped(name: str) -> str:
    return (_SHIPPED / name).read_text(encoding="utf-8")
