"""What this process has loaded: the half in Python. A load has its library, its bindings, and texts behind torch's modules.

The state is kept on torch, so that a package that is imported again finds it.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from ..core.errors import UsageError
from ..deliver.shipped import publish
from . import caches, compiled
from .changes import Changes
from .inherited import name_to_children
from .library import Loads
from .missing import explain

_STATE = "_graft_loads"


@dataclass
class Load:
    """A load.

    Args:
        name: its name.
        built: the folder with its library and texts.
        note: what the folder says about itself.
        library: its library, or a copy of it.
        schemas: the schemas of its operators.
        changes: what its texts changed in torch.
        behind: runs texts behind modules that are imported later.
    """

    name: str
    built: Path
    note: dict[str, Any]
    library: Path
    schemas: dict[str, str] = field(default_factory=dict)
    changes: Changes = field(default_factory=Changes)
    behind: Any = None


@dataclass
class State:
    """The loads of this process, in the order in which they were first loaded."""

    loads: dict[str, Load] = field(default_factory=dict)
    lock: Any = field(default_factory=threading.RLock)
    library: Loads | None = None
    # The contents of `torch._added_operators` without loads; None if there was none.
    added: dict[str, Any] | None = None
    # How many definitions had been taken back when each library was opened.
    opened: dict[Path, int] = field(default_factory=dict)
    taken_back: int = 0
    # Why an operator is gone, by name.
    gone: dict[str, str] = field(default_factory=dict)


def state() -> State:
    """Return the state of this process."""
    import torch

    if not hasattr(torch, _STATE):
        setattr(torch, _STATE, State())
    found: State = getattr(torch, _STATE)
    return found


def use(name: str, built: Path) -> None:
    """Make what ``built`` holds the load ``name``. If something fails, the process keeps what it had."""
    now = state()
    with now.lock:
        note = json.loads((built / "note.json").read_text(encoding="utf-8"))
        old = now.loads.get(name)
        if old and old.built == built:
            return
        new = Load(name, built, note, _library(now, built))
        if not old or old.note["operators"] != note["operators"]:
            _require_ours(new, now)
        if now.library is None:
            now.library = Loads(built / "libgraft_loads.so")
        now.library.load(name, new.library)
        new.schemas = {each: _schema(each) for each in note["operators"]}
        now.taken_back += sum(new.schemas.get(each) != schema for each, schema in old.schemas.items()) if old else 0
        if old and old.note["generated"] == note["generated"]:
            new.changes, new.behind = old.changes, old.behind
            now.loads[name] = new
            _tell(now, old, new)
            return
        try:
            _replace(now, old, new)
        except BaseException:
            _go_back(now, old, new)
            raise
        _tell(now, old, new)


def unload(name: str) -> None:
    """Take back a load."""
    now = state()
    with now.lock:
        old = now.loads.get(name)
        if old is None:
            there = f"loaded are {', '.join(now.loads)}" if now.loads else "nothing is loaded"
            raise UsageError(f"{name}: no load has this name", cause=there)
        assert now.library is not None
        now.library.unload(name)
        now.taken_back += 1
        _replace(now, old, None)
        _tell(now, old, None)


def _library(now: State, built: Path) -> Path:
    """Return the library in ``built``, or a copy of it. One that was open when definitions were taken back has handles to
    those.
    """
    path = built / "operators.so"
    if now.opened.setdefault(path, now.taken_back) == now.taken_back:
        return path
    with tempfile.NamedTemporaryFile(prefix="operators-", suffix=".so", delete=False) as file:
        file.write(path.read_bytes())
    return Path(file.name)


def _schema(operator: str) -> str:
    import torch

    name, _, overload = operator.partition(".")
    return str(torch._C._get_schema(name, overload))


def _require_ours(new: Load, now: State) -> None:
    """Check that no other load, and no other package, has one of the operators."""
    import torch

    own = set(now.loads[new.name].note["operators"]) if new.name in now.loads else set[str]()
    of_graft = set(getattr(_added(), "OPERATORS", ()))
    for operator in new.note["operators"]:
        for other in now.loads.values():
            if other.name != new.name and operator in other.note["operators"]:
                raise UsageError(
                    f"{operator}: the load {other.name} has this operator",
                    todo=f'graft.unload("{other.name}"), or load it under that name',
                )
        name, _, overload = operator.partition(".")
        found = torch._C._jit_get_operation(name) if operator not in own | of_graft else None
        if found and found[1] and overload in found[1]:
            raise UsageError(f"{operator}: another package defines this operator", todo="give yours another name")


def _added() -> ModuleType | None:
    return sys.modules.get("torch._added_operators")


def _replace(now: State, old: Load | None, new: Load | None) -> None:
    """Exchange the bindings of a load, its names and texts; of the loads behind it, the texts, which may build on its."""
    import torch

    name = (new or old).name  # type: ignore[union-attr]
    assert now.library is not None
    behind = list(now.loads.values())
    if old:
        behind = behind[behind.index(old) :]
    for load in reversed(behind if old else []):
        _withdraw(load)
    bound = publish.bound(old.note) if old else {}
    before = publish.bound(new.note) if new else bound
    now.library.bind(name, new.library if new else None, torch._C)
    later = [load for load in (behind if old else []) if load is not old]
    if new:
        now.loads[name] = new
    else:
        del now.loads[name]
    _merge(now)
    _refresh(old, new)
    if new:
        _publish(new, before)
    _remove_names(old, new)
    for load in [*([new] if new else []), *later]:
        _run_texts(load)


def _withdraw(load: Load) -> None:
    """Undo what a load's texts did."""
    if load.behind in sys.meta_path:
        sys.meta_path.remove(load.behind)
    load.changes.undo()


def _merge(now: State) -> None:
    """Make ``torch._added_operators`` list the operators of torch itself and of all loads."""
    import torch

    shared = _added() or getattr(torch, "_added_operators", None)
    if now.added is None:
        import importlib.util

        if importlib.util.find_spec("torch._added_operators"):
            from torch import _added_operators as shared  # type: ignore[attr-defined]

            now.added = {name: _copy(value) for name, value in vars(shared).items() if name.isupper()}
        else:
            now.added = {}
    if shared is not None:
        for name in [name for name in vars(shared) if name.isupper()]:
            there = getattr(shared, name)
            there.clear()
            first = now.added.get(name)
            if first:
                there.extend(first) if isinstance(there, list) else there.update(first)
    for load in now.loads.values():
        publish.merge(publish.module("torch._added_operators", load.built / "_added_operators.py"))


def _copy(value: Any) -> Any:
    return type(value)(value)


def _publish(new: Load, before: dict[Any, Any]) -> None:
    import torch

    added = publish.module("torch._added_operators", new.built / "_added_operators.py")
    torch._thin_wheels = {  # type: ignore[attr-defined]
        **getattr(torch, "_thin_wheels", {}),
        new.name: {**new.note, "folder": str(new.built), "libraries": [str(state().library.path)]},  # type: ignore[union-attr]
    }
    bound = publish.publish(new.note, added, before)
    publish.tell_torchscript({key: value for key, value in bound.items() if before.get(key) is not value})


def _remove_names(old: Load | None, new: Load | None) -> None:
    """Remove the public functions that only the old load had."""
    import torch

    if old and not new:
        torch._thin_wheels = {k: v for k, v in torch._thin_wheels.items() if k != old.name}  # type: ignore[attr-defined]
    gone = _functions(old) - _functions(new)
    for name in gone:
        if not hasattr(torch._C._VariableFunctions, name):
            vars(torch).pop(name, None)
            if name in torch.__all__:
                torch.__all__.remove(name)
            load = (new or old).name  # type: ignore[union-attr]
            _note_gone(name, f"graft.load had it in {load}, which was {'edited' if new else 'unloaded'} since")


def _note_gone(name: str, why: str) -> None:
    import torch

    gone = state().gone
    if not gone:
        explain(torch, lambda asked: gone.get(asked, ""))
    gone[name] = why


def _functions(load: Load | None) -> set[str]:
    return {name.partition("::")[2].partition(".")[0] for name in load.note["operators"]} if load else set()


def _refresh(old: Load | None, new: Load | None) -> None:
    """Bring ``torch.ops`` up to date."""
    before = set(old.note["operators"]) if old else set[str]()
    after = set(new.note["operators"]) if new else set[str]()
    known = old.schemas if old else {}
    changed = [name for name in after if not new or known.get(name) != new.schemas[name]]
    caches.update_packets(changed=sorted(changed), gone=sorted(before - after))


def _run_texts(load: Load) -> None:
    load.changes = Changes()
    with load.changes.recorded():
        load.behind = publish.Behind(load.note, lambda name: str(load.built / name))
        sys.meta_path.insert(0, load.behind)
        load.behind.run_loaded()


def _go_back(now: State, old: Load | None, new: Load) -> None:
    """Restore a process in which a new load failed after its library was opened."""
    assert now.library is not None
    if old:
        now.library.load(old.name, old.library)
        _replace(now, new if now.loads.get(new.name) is new else None, old)
    else:
        now.library.unload(new.name)
        if new.name in now.loads:
            _replace(now, new, None)


def _tell(now: State, old: Load | None, new: Load | None) -> None:
    """Forget what is known about operators whose schema, formulas or texts have changed."""
    name_to_children((load.name, load.built) for load in now.loads.values())
    before, after = (load.note["facts"] if load else {} for load in (old, new))
    differing = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    if not differing:
        return
    caches.set_key(json.dumps([[load.name, load.note["facts"]] for load in now.loads.values()]))
    caches.forget(differing)
    compiled.reset(differing)
