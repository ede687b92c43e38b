"""Build what this process loads, with the pipeline of all deliveries, for the torch that runs."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..base.installed import Environment, layout_on
from ..core.console import WARNING, say
from ..core.cuda_settings import NO_GPU
from ..core.errors import BuildError, Finding, MissingError
from ..core.extra_flags import ExtraFlags
from ..core.layout import LOADED, LOADED_DEBUG, LOADED_SANITIZED, Layout
from ..cpp.tokens import without_comments
from ..deliver.built import builds_of, unchanged
from ..deliveries import Loaded, run
from ..given import given_as, in_environment, request_of
from ..inputs.native import FUNCTIONS, NativeFolders, load_native
from ..inputs.snapshot import Snapshot, take_snapshot
from ..options import INSTALLED, Request
from .running import environment_of, is_sanitized

# Registrations that cannot be repeated, so that an edited source could not be loaded: why, and what to do instead.
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


@dataclass(frozen=True)
class Wanted:
    """A request to load a native folder. The process that builds gets a copy.

    Args:
        folder: the native folder.
        name: the name of the load.
        extra: the user's compiler flags.
        owner: for texts, whose folder is named after their content, identifies builds that replace each other.
        environment: the environment of the process.
        kind: ``LOADED``, ``LOADED_DEBUG`` or ``LOADED_SANITIZED``.
        architectures: the architectures of this machine's GPUs.
        declared: entries of native_functions.yaml for the operators of other loads, by operator.
    """

    folder: Path
    name: str
    extra: ExtraFlags
    owner: str
    environment: Environment
    kind: str
    architectures: str
    declared: Mapping[str, str] = field(default_factory=dict)

    @property
    def request(self) -> Request:
        """The request of a command line with the same environment variables, completed with these fields."""
        chosen = {"pin": INSTALLED, "native": f"'{self.folder}'"}
        default = {"cuda_archs": self.architectures}
        return request_of({**given_as(default), **in_environment(), **given_as(chosen)})

    @property
    def delivery(self) -> Loaded:
        """The delivery that builds this."""
        layout = replace(
            layout_on(self.request.layout, self.environment),
            natives=(self.folder,),
            extra=self.extra,
            kind=self.kind,
            owner=self.owner,
            declared=self.declared,
        )
        return Loaded(layout, self.environment, self.name)


def wanted(folder: Path, name: str, extra: ExtraFlags, owner: str = "") -> Wanted:
    """Describe the load of a native folder into this process."""
    import torch

    debug = request_of(in_environment()).debug
    kind = LOADED_SANITIZED if is_sanitized() else LOADED_DEBUG if debug else LOADED
    return Wanted(folder, name, extra, owner, environment_of(torch), kind, _architectures(torch))


def operators_in(natives: NativeFolders) -> dict[str, str]:
    """Map each operator that entries define, with namespace and overload, to the place of its entry."""
    return {
        each.operator if "::" in each.operator else f"aten::{each.operator}": f"{each.file}:{each.line}"
        for each in natives.entries(FUNCTIONS, replacing=False)
    }


def find(what: Wanted) -> Path | Snapshot:
    """Return the folder of the build, if it was built from the same sources; otherwise the snapshot to build.

    Raises:
        BuildError: a source cannot be loaded.
        MissingError: there is neither a compiler nor a build.
    """
    delivery = what.delivery
    try:
        snapshot = take_snapshot(delivery.layout)
    except MissingError as error:
        if built := _built_before(delivery.layout, delivery.kind, what.folder):
            say(f"{what.folder}: loaded as it was built, since it is unchanged; {error.what}", WARNING)
            return built
        raise
    _require_loadable(snapshot)
    note = unchanged(delivery.layout, snapshot, delivery.noted(snapshot), delivery.fingerprint)
    return note.path if note else snapshot


def build(what: Wanted, snapshot: Snapshot | None = None) -> Path:
    """Build what is out of date, by default from the sources as they are now. Return the folder of the build."""
    delivery = what.delivery
    # The process that took it may have another GRAFT_HOME, or older code, on which its hashes depend.
    snapshot = replace(snapshot, work=delivery.layout.work) if snapshot else None
    return run(delivery, what.request, snapshot).path


def _architectures(torch: Any) -> str:
    """Return the architectures of this machine's GPUs; empty if torch has no CUDA."""
    if not torch.version.cuda:
        return ""
    found = {torch.cuda.get_device_capability(number) for number in range(torch.cuda.device_count())}
    return " ".join(f"{major}{minor}" for major, minor in sorted(found)) or NO_GPU


def _require_loadable(snapshot: Snapshot) -> None:
    """Check that no source has a registration that cannot be repeated.

    Raises:
        BuildError: lists their places.
    """
    found = sorted(_not_loadable(snapshot))
    if found:
        raise BuildError("\n".join(map(str, found)), findings=found)


def _not_loadable(snapshot: Snapshot) -> Iterator[Finding]:
    natives = snapshot.read
    for name in natives.cplusplus:
        text = without_comments(natives.text(name))
        for pattern, (why, todo) in _REGISTERS.items():
            for hit in pattern.finditer(text):
                yield Finding(natives.file(name), text.count("\n", 0, hit.start()) + 1, 0, why, todo)


def _built_before(layout: Layout, kind: str, folder: Path) -> Path | None:
    """Return a build of the folder's current files, for a machine without a compiler; None if there is none."""
    native = load_native(folder)
    now = {native.shown(name): hashlib.sha256(path.read_bytes()).hexdigest() for name, path in native.paths.items()}
    unread = {str(name) for name in native.unread}
    for built in builds_of(layout, kind):
        note = built.path / "note.json"
        if not note.is_file():
            continue
        told = json.loads(note.read_text(encoding="utf-8"))
        if "calls" not in told:  # by another version of Graft
            continue
        (then,) = told["folders"].values()
        is_as_set = told.get("settings") == list(native.settings.stamp)
        if is_as_set and now == {name: digest for name, digest in then.items() if name not in unread}:
            return built.path
    return None
