"""The loads of this process. A load has a library, with kernels and bindings, and texts that extend torch's modules.

The state is an attribute of torch, so that a ``graft`` that is imported again finds it.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from ..core.console import WARNING, say
from ..core.errors import UsageError
from ..deliver.shipped import publish
from ..inputs.spelling import name_of, python_names
from . import caches, checkpoints, compiled, names
from .call_guards import uninterrupted, wait_for_imports
from .copies import copy_of, delete_those_of_the_dead
from .inherited import name_to_children, of_parent
from .library import Loads
from .text_hooks import Hooks, Texts

_STATE = "_graft_loads"


class Definition(NamedTuple):
    """The definition of an operator in the dispatcher. It changes with the schema or the tags."""

    schema: str
    tags: frozenset[Any]


@dataclass
class Load:
    """A load.

    Args:
        name: its name.
        folder: the native folder.
        built: the folder with its library and texts.
        note: the content of ``note.json`` in that folder.
        library: its library, or a copy of it.
        definitions: the definitions of its operators, by name.
        texts: its texts that extend modules of torch.
        is_cell: whether it is a cell of a notebook. Later cells may take its operators over.
        taken: the operators that later cells have taken over.
        messages: the texts that it was loaded from, which messages name; None if that was a folder.
    """

    name: str
    folder: Path
    built: Path
    note: dict[str, Any]
    library: Path
    definitions: dict[str, Definition] = field(default_factory=dict)
    texts: Texts | None = None
    is_cell: bool = False
    taken: frozenset[str] = frozenset()
    messages: Any = None

    @property
    def facts(self) -> dict[str, str]:
        """What compilers inline of its operators: a hash for each, by name."""
        gone = {each.partition(".")[0] for each in self.taken}
        return {name: fact for name, fact in self.note["facts"].items() if name not in gone}

    @property
    def operators(self) -> list[str]:
        """The operators that it has now, with namespace and overload."""
        return [each for each in self.note["operators"] if each not in self.taken]

    @property
    def entries(self) -> dict[str, str]:
        """Entries of native_functions.yaml for callers of these operators."""
        return {each: self.note["entries"][each] for each in self.operators}


@dataclass
class State:
    """The state of a process.

    Args:
        loads: the loads, in the order in which each was first loaded.
        lock: held while operators are built, loaded or unloaded.
        library: the library that all share; None before the first load.
        lists: `torch._added_operators` without the loads.
        opened: by folder of a build, the library or copy last opened, and the number of definitions retired by then.
        gone: why an operator is gone, by name.
        told: the warnings that were logged.
        watches: the folders that are built after each save, by the name of the load.
        tried: what a load calls of others, for which it was built again, by its name.
    """

    loads: dict[str, Load] = field(default_factory=dict)
    lock: Any = field(default_factory=threading.RLock)
    library: Loads | None = None
    lists: dict[str, Any] = field(default_factory=dict)
    opened: dict[Path, tuple[Path, int]] = field(default_factory=dict)
    gone: dict[str, str] = field(default_factory=dict)
    told: set[str] = field(default_factory=set)
    watches: dict[str, Any] = field(default_factory=dict)
    tried: dict[str, Any] = field(default_factory=dict)


def state() -> State:
    """Return the state of this process."""
    import torch

    if not hasattr(torch, _STATE):
        setattr(torch, _STATE, State())
        os.register_at_fork(after_in_child=_after_fork)
    found: State = getattr(torch, _STATE)
    return found


def _after_fork() -> None:
    """Renew the lock in a forked child, since a thread of the parent may hold it, and watch no folders there."""
    now = state()
    now.lock, now.watches = threading.RLock(), {}


def use(
    name: str,
    built: Path,
    folder: Path | None = None,
    *,
    is_cell: bool = False,
    taken: frozenset[str] = frozenset(),
    messages: Any = None,
) -> None:
    """Load the build in ``built`` as ``name``, in place of an earlier load. If that fails, the process stays as it was.

    Args:
        name: the name of the load.
        built: the folder of the build.
        folder: the native folder; by default the one that the note names.
        is_cell: whether it is a cell, which takes operators over from other cells.
        taken: the operators that other cells keep.
        messages: the texts that it was built from; None for a folder.
    """
    now = state()
    with now.lock:
        old = now.loads.get(name)
        if old and old.built == built and old.taken == taken:
            old.messages = messages
            return
        note = json.loads((built / "note.json").read_text(encoding="utf-8"))
        if "calls" not in note:
            raise UsageError(f"{built}: another version of Graft built it", todo="load its sources again")
        own = [each for each in note["operators"] if each not in taken]
        from_others = taken_from(name, own, is_cell=is_cell)
        _require_ours(own)
        library = _shared(now, built)
        path = folder or Path(*note["folders"])
        new = Load(name, path, built, note, built, is_cell=is_cell, taken=taken, messages=messages)
        _exchange_all(now, library, old, new, from_others)


def taken_from(name: str, operators: Iterable[str], *, is_cell: bool = False) -> dict[str, set[str]]:
    """Return the operators that a cell takes over, by the name of the load that has them.

    Args:
        name: the name of the cell or other load.
        operators: the operators that it defines. A mapping has the place of each.
        is_cell: whether it is a cell. Other loads take nothing over.

    Raises:
        UsageError: another load has one of the operators, and they are not both cells.
    """
    found: dict[str, set[str]] = {}
    of_name = {each.partition(".")[0]: each for each in operators}
    for load in state().loads.values():
        theirs = {each for each in load.operators if each.partition(".")[0] in of_name} if load.name != name else set()
        if theirs and not (is_cell and load.is_cell):
            operator = of_name[min(theirs).partition(".")[0]]
            place = f"{operators[operator]}: " if isinstance(operators, Mapping) else ""
            raise UsageError(
                f"{place}{operator}: the load {load.name}, of {load.folder}, has this operator",
                todo=f'call graft.unload("{load.name}"), or load yours under that name',
            )
        if theirs:
            found[load.name] = theirs
    return found


def inherit(name: str) -> None:
    """Load what the parent process had loaded, as the file ``name`` says.

    Raises:
        ValueError: there is no file of this name.
    """
    every, gone = of_parent(name)
    for each, built, taken, is_cell in every:
        use(each, Path(built), is_cell=is_cell, taken=frozenset(taken))
    names.explain_gone(gone, state().gone)


def unload(name: str) -> None:
    """Undo a load. If that fails, the process keeps it.

    Raises:
        UsageError: there is no such load.
    """
    now = state()
    with now.lock:
        old = now.loads.get(name)
        if old is None or now.library is None:
            there = f"loaded are {', '.join(now.loads)}" if now.loads else "nothing is loaded"
            raise UsageError(f"{name}: no load has this name", cause=there)
        _exchange(now, now.library, old, None)
        _renew(now, now.library)


def declared(but: str) -> dict[str, str]:
    """Return entries of native_functions.yaml for the operators of all loads ``but`` one, by operator."""
    others = (load for load in state().loads.values() if load.name != but)
    return {operator: text for load in others for operator, text in load.entries.items()}


def outdated() -> list[tuple[Load, dict[str, str]]]:
    """Return the loads that were built for other schemas of operators of other loads than these have now, each with the
    entries of these operators; but no load that was built for them already.
    """
    now, found = state(), []
    for load in now.loads.values():
        there = declared(load.name)
        calls = {operator: there.get(operator, text) for operator, text in load.note["calls"].items()}
        if calls != load.note["calls"] and now.tried.get(load.name) != calls:
            found.append((load, calls))
    return found


def _require_ours(operators: Iterable[str]) -> None:
    """Check that no other package has one of the operators."""
    import torch

    known = names.of_graft()
    for operator in operators:
        base, _, overload = operator.partition(".")
        found = None if operator in known else torch._C._jit_get_operation(base)
        if found and overload in (found[1] or ()):
            what = f"{operator}: another package defines this operator"
            raise UsageError(what, todo="give yours another name, or do not import that package")


def _shared(now: State, built: Path) -> Loads:
    """Return the library that all loads share. The first load opens it."""
    if now.library is None:
        delete_those_of_the_dead()
        now.lists = names.lists_without_loads()
        now.library = Loads(built / "libgraft_loads.so")
        Hooks().begin()
    return now.library


def _library(now: State, library: Loads, built: Path) -> Path:
    """Return the library in ``built``; a copy, if it may have handles to definitions retired since it was opened."""
    path, retired = now.opened.get(built, (built / "operators.so", library.retired))
    if retired != library.retired:
        path = copy_of(built / "operators.so")
    now.opened[built] = path, library.retired
    return path


def _exchange_all(now: State, library: Loads, old: Load | None, new: Load, taken: Mapping[str, Iterable[str]]) -> None:
    """Replace ``old`` by ``new``, which takes operators over from other loads. If a step fails, restore everything."""
    order, before = [*now.loads], {name: now.loads[name] for name in taken}
    with uninterrupted():
        try:
            for name, operators in taken.items():
                _exchange(now, library, before[name], _without(now, library, before[name], operators))
            is_last = bool(taken or (old and old.taken != new.taken))
            _exchange(now, library, old, _reopened(now, library, new), is_last=is_last)
            _renew(now, library)
        except BaseException:
            if now.loads.get(new.name) is not old:
                _exchange(now, library, now.loads[new.name], _reopened(now, library, old) if old else None)
            for each in before.values():
                _exchange(now, library, now.loads.get(each.name), _reopened(now, library, each))
            there = {name: now.loads[name] for name in order}
            now.loads.clear()
            now.loads.update(there)
            raise
    for name, operators in taken.items():
        gone = "" if name in now.loads else ", which had nothing else and is unloaded"
        say(f"{', '.join(sorted(operators))}: taken over from the cell {name}{gone}", WARNING)


def _without(now: State, library: Loads, load: Load, operators: Iterable[str]) -> Load | None:
    """Return a load without some of its operators; None if it has nothing else."""
    taken = load.taken | {*operators}
    if load.note["replaced"] or not taken.issuperset(library.operators(load.name)):
        return _reopened(now, library, replace(load, taken=taken, texts=None))
    return None


def _reopened(now: State, library: Loads, load: Load) -> Load:
    return replace(load, library=_library(now, library, load.built))


def _renew(now: State, library: Loads) -> None:
    """Open the libraries again whose own code calls operators that other loads have taken: it may hold definitions that
    were retired since.
    """
    for each in [*now.loads.values()]:
        if each.taken and now.opened[each.built][1] != library.retired:
            _exchange(now, library, each, _reopened(now, library, each))


def _exchange(now: State, library: Loads, old: Load | None, new: Load | None, *, is_last: bool = False) -> None:
    """Replace ``old`` by ``new``: kernels, then bindings, names and texts. If a step fails, restore everything.

    ``is_last`` puts it behind all others, as children of this process load them.
    """
    load = new or old
    assert load is not None
    before = dict(now.loads)
    after = {name: each for name, each in before.items() if name != load.name or (new and not is_last)}
    after |= {new.name: new} if new else {}
    there = {**_definitions(load.note["operators"]), **(old.definitions if old else {})}
    wait_for_imports()
    with uninterrupted():
        try:
            _switch(now, library, load.name, new, there)
            if old and new and old.note["generated"] == new.note["generated"] and old.taken == new.taken:
                new.texts = old.texts
                now.loads[new.name] = new
            else:
                _restart(now, library, load.name, after, before)
            _tell(now, old, new)
        except BaseException:
            if old:
                old.library = _library(now, library, old.built)
            _switch(now, library, load.name, old, _definitions([*there, *library.operators(load.name)]))
            _restart(now, library, load.name, before, after)
            _tell(now, new, old)
            raise


def _switch(now: State, library: Loads, name: str, load: Load | None, before: Mapping[str, Definition]) -> None:
    """Install the kernels and definitions of ``load``; None removes them. ``before`` has the previous definitions."""
    if load:
        library.load(name, load.library, load.taken)
    else:
        library.unload(name)
    operators = library.operators(name) if load else []
    after = _definitions([*before, *operators])
    for each, definition in before.items():
        if each in after and after[each] != definition:
            _tell_defaults(definition.schema, after[each].schema)
    caches.update_packets(
        changed=sorted(each for each, definition in after.items() if before.get(each) != definition),
        gone=sorted(before.keys() - after.keys()),
    )
    if load:
        load.definitions = {each: after[each] for each in operators}


def _tell_defaults(before: str, after: str) -> None:
    """Warn if a default has changed: graphs leave out arguments that have their default value."""
    import torch

    old, new = torch._C.parse_schema(before), torch._C.parse_schema(after)
    if [(a.name, a.type) for a in old.arguments] != [(a.name, a.type) for a in new.arguments]:
        return
    name = f"{old.name}.{old.overload_name}".rstrip(".")
    for a, b in zip(old.arguments, new.arguments, strict=True):
        if a.default_value != b.default_value:
            say(
                f"{name}: the default of {a.name} was {a.default_value} and is {b.default_value}: graphs that were "
                "traced before, and saved programs, leave it out, and get the new one",
                WARNING,
            )


def _definitions(operators: Iterable[str]) -> dict[str, Definition]:
    """Return the definitions of the operators that exist, by name."""
    import torch

    found = {}
    for operator in operators:
        name, _, overload = operator.partition(".")
        if there := torch._C._get_operation_overload(name, overload):
            found[operator] = Definition(str(torch._C._get_schema(name, overload)), frozenset(there[2]))
    return found


def _restart(now: State, library: Loads, name: str, after: Mapping[str, Load], before: Mapping[str, Load]) -> None:
    """Replace the bindings, names and texts of the load ``name``, even if an earlier attempt stopped halfway.

    Texts of later loads may build on its texts, so they run again.
    """
    import torch

    old, new = before.get(name), after.get(name)
    orders = [[*each] for each in (before, after) if name in each]
    behind = {each for order in orders for each in order[order.index(name) + 1 :]}
    later = [each for each in after.values() if each.name in behind]
    load = new or old
    assert load is not None
    for each in reversed([*filter(None, (old, new)), *later]):
        if each.texts:
            each.texts.end()
    bound = publish.bound(load.note)
    library.bind(name, new.library if new else None, torch._C, new.taken if new else ())
    now.loads.clear()
    now.loads.update(after)
    names.merge(now.lists, [(each.built, each.taken) for each in now.loads.values()])
    _note_for_torch(now)
    if new:
        names.publish_names(new.note, new.built, new.taken, bound)
    how = "edited" if new else "unloaded"
    had = {*map(name_of, old.operators)} if old else ()
    names.remove_names(had, f"the load {name} of graft.load had it, and was {how} since", now.gone)
    for each in later:
        library.bind(each.name, each.library, torch._C, each.taken)
    for each in [each for each in after.values() if each.name in {name, *behind}]:
        each.texts = Texts(each.note, each.built, python_names(each.taken))
        each.texts.begin()
        library.document(each.name)


def _note_for_torch(now: State) -> None:
    """List the loads in ``torch._thin_wheels``, where ``torch._graft`` looks for them."""
    import torch

    others = {name: note for name, note in getattr(torch, "_thin_wheels", {}).items() if note["delivery"] != "load"}
    shared = [str(now.library.path)] if now.library else []
    ours = {
        f"{name} (graft.load)": {**load.note, "folder": str(load.built), "libraries": shared}
        for name, load in now.loads.items()
    }
    torch._thin_wheels = {**others, **ours}


def _tell(now: State, old: Load | None, new: Load | None) -> None:
    """Pass the loads to child processes. If facts that compilers inline changed, clear caches and compiled code."""
    import torch

    gone = {name: why for name, why in now.gone.items() if name not in vars(torch)}
    name_to_children(
        ((each.name, str(each.built), sorted(each.taken), each.is_cell) for each in now.loads.values()), gone
    )
    before, after = (load.facts if load else {} for load in (old, new))
    differing = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    if differing:
        caches.set_key(json.dumps([[load.name, load.facts] for load in now.loads.values()]))
        # A fact about a file may concern any operator.
        operators = differing if all("::" in name for name in differing) else None
        caches.forget(operators)
        compiled.reset(operators)
        checkpoints.count_edit()
