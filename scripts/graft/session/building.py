"""Build what this process loads: the pipeline of all deliveries, for the torch that runs."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.console import WARNING, say
from ..core.cuda_settings import NO_GPU
from ..core.errors import BuildError, Finding, MissingError
from ..core.extra_flags import ExtraFlags
from ..core.layout import LOADED, LOADED_SANITIZED
from ..inputs.comments import without_comments
from ..options import INSTALLED, OPTIONS, Request, request_of
from .running import environment_of, is_sanitized

# What keeps a list of its own, which a second load of the same source would not fit: why, and what to do instead.
_REGISTERS = {
    re.compile(r"\btorch::class_\s*<"): (
        "torch::class_ registers a class once in a process, so an edit could not replace it",
        "build it with make develop",
    ),
    re.compile(r"\b(?:PYBIND11_MODULE|PYBIND11_EMBEDDED_MODULE)\s*\("): (
        "a pybind11 module is imported by Python, which loads no operators from it",
        "leave it out; bindings are generated from the entries",
    ),
}


def build(folder: Path, name: str, extra: ExtraFlags) -> Path:
    """Return the folder with what the native folder's operators are loaded from, built if something changed."""
    import torch

    from ..base.installed import layout_on
    from ..deliveries import Loaded, run

    environment = environment_of(torch)
    request = _request(folder, torch)
    kind = LOADED_SANITIZED if is_sanitized() else LOADED
    layout = replace(layout_on(request.layout, environment), extra=extra, kind=kind)
    delivery = Loaded(layout, environment, name)
    _require_loadable(folder)
    try:
        return run(delivery, request).path
    except MissingError as error:
        if built := _built_before(delivery, folder):
            say(f"{folder}: loaded as it was built, since it is unchanged; {error.what}", WARNING)
            return built
        raise


def _request(folder: Path, torch: Any) -> Request:
    """Return what to build: as the command line would read it from variables, with what this process knows."""
    given = {each.name: each.given(os.environ) for each in OPTIONS.values()}
    given |= {"pin": INSTALLED, "native": f"'{folder}'"}
    given["jobs"] = os.environ.get("MAX_JOBS") or given["jobs"]
    given["cuda_archs"] = given["cuda_archs"] or _architectures(torch)
    return request_of(given, {each.name: each.word for each in OPTIONS.values()})


def _architectures(torch: Any) -> str:
    """Return the architectures of this machine's GPUs."""
    if not torch.version.cuda:
        return ""
    found = {torch.cuda.get_device_capability(number) for number in range(torch.cuda.device_count())}
    return " ".join(f"{major}{minor}" for major, minor in sorted(found)) or NO_GPU


def _require_loadable(folder: Path) -> None:
    """Check that no source registers what cannot be registered again.

    Raises:
        BuildError: lists the places.
    """
    found = sorted(_not_loadable(folder))
    if found:
        raise BuildError("\n".join(map(str, found)), findings=found)


def _not_loadable(folder: Path) -> Iterator[Finding]:
    from ..inputs.native import load_native

    native = load_native(folder)
    for name in native.cplusplus:
        text = without_comments(native.text(name))
        for pattern, (why, todo) in _REGISTERS.items():
            for hit in pattern.finditer(text):
                yield Finding(folder / name, text.count("\n", 0, hit.start()) + 1, 0, why, todo)


def _built_before(delivery: Any, folder: Path) -> Path | None:
    """Return what was built of the folder as it is now, on a machine that has no compiler any more."""
    from ..deliver.built import load_built
    from ..inputs.native import load_native

    built = load_built(delivery.layout, delivery.kind)
    if built is None or not (built.path / "note.json").is_file():
        return None
    note = json.loads((built.path / "note.json").read_text(encoding="utf-8"))
    native = load_native(folder)
    now = {str(name): hashlib.sha256(path.read_bytes()).hexdigest() for name, path in native.paths.items()}
    then = {
        name: digest for name, digest in note["folders"].get(str(folder), {}).items() if Path(name) not in native.unread
    }
    return built.path if now == then else None
