"""Record and undo what Python texts change in torch."""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib.machinery
import sys
import threading
import types
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import MISSING
from operator import is_
from pathlib import Path
from typing import Any, ClassVar

# Stands for a missing value. A second import of this module has the same object, as earlier recordings need.
_NOTHING: Any = MISSING
# How deep containers in modules are searched: tables of tables, lists of objects with tables.
_DEPTH = 4
# Modules that looking up operators fills. They are never restored: a lost entry would not come back.
_CACHES = {"torch._ops", "torch.ops", "torch.jit._builtins", "torch._classes", "torch.classes"}
_LEFT_OUT = {"__builtins__", "__warningregistry__"}
_OF_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__", "__doc__")
_REGISTERING = (
    "define",
    "impl",
    "fallback",
    "_impl_with_aoti_compile",
    "_register_fake",
    "_register_torch_dispatch_rule",
    "_register_effectful_op",
    "register_symm_mem_args",
)
_FILE_LOADERS = (
    importlib.machinery.SourceFileLoader,
    importlib.machinery.SourcelessFileLoader,
    importlib.machinery.ExtensionFileLoader,
)


class Changes:
    """The changes that texts make in torch: in modules, tables, classes, operators and libraries.

    The import of a module while a text runs, and what that import changes, are not recorded, unless the module is one
    that a folder adds to torch. The text for an imported module has a ``recorded()`` of its own, within the import.
    """

    # Nested recordings: the last one records, the others are paused. One thread records at a time.
    _stack: ClassVar[list[Changes]] = []

    def __init__(self) -> None:
        self._kept: _Kept | None = None
        self._made: list[_Undo] = []
        # Libraries that were created while recording, and stand-ins of ours for older libraries.
        self._libraries: list[Any] = []
        self._stand_ins: dict[int, tuple[Any, Any]] = {}
        self._thread = 0

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Record what the body changes. If it raises, undo everything recorded since the last ``undo``; in an import
        that pauses another recording of this object, only what the body changed.
        """
        with contextlib.ExitStack() as stack:
            if self._stack:
                stack.enter_context(self._stack[-1]._paused())
            else:
                stack.enter_context(_watched_imports())
                stack.enter_context(_watched_libraries())
            begun = (len(self._made), len(self._libraries)) if self in self._stack else (0, 0)
            self._stack.append(self)
            stack.callback(self._stack.pop)
            self._thread = threading.get_ident()
            outer, self._kept = self._kept, _Kept()
            try:
                yield
            except BaseException:
                self._collect()
                self._undo_since(*begun)
                raise
            finally:
                self._collect()
                self._kept = outer

    @property
    def is_recording(self) -> bool:
        """Whether changes are recorded at this moment."""
        return self._kept is not None

    def undo(self) -> None:
        """Undo the recorded changes, the last one first. Skip values that other code has changed since."""
        self._undo_since(0, 0)

    def _undo_since(self, made: int, libraries: int) -> None:
        """Undo the changes, and release the libraries, behind the first ones."""
        gone, self._made = self._made[made:], self._made[:made]
        for undo in reversed(gone):
            undo()
        _forget_copies(gone)
        released, self._libraries = self._libraries[libraries:], self._libraries[:libraries]
        for library in reversed(released):
            _destroy(library)
        left = {id(library) for library in self._libraries}
        self._stand_ins = {key: pair for key, pair in self._stand_ins.items() if id(pair[1]) in left}
        _clear_dispatch_caches()

    def _collect(self) -> None:
        if self._kept is not None:
            self._made += self._kept.changes()
            self._kept = None

    @contextlib.contextmanager
    def _paused(self) -> Iterator[None]:
        """Suspend recording while the body runs."""
        if self._kept is None:
            yield
            return
        self._collect()
        try:
            yield
        finally:
            self._kept = _Kept()

    @classmethod
    def _recording(cls) -> Changes | None:
        """Return the active recording of this thread; None if there is none, or it is paused."""
        last = cls._stack[-1] if cls._stack else None
        return last if last and last._kept is not None and last._thread == threading.get_ident() else None

    def _own(self, library: Any) -> Any:
        """Return the library to register in: ``library``, or a stand-in if it is older than the recording."""
        if any(library is each for each in self._libraries):
            return library
        if id(library) not in self._stand_ins:
            kind = "IMPL" if library.kind == "IMPL" else "FRAGMENT"
            # The wrapped constructor adds it to ``_libraries``.
            self._stand_ins[id(library)] = (library, type(library)(library.ns, kind, library.dispatch_key))
        return self._stand_ins[id(library)][1]


_Undo = Callable[[], None]


class _Kept:
    """Copies of everything in torch that texts may change."""

    def __init__(self) -> None:
        self._tables: list[tuple[dict[Any, Any], dict[Any, Any], str]] = []
        self._lists: list[tuple[list[Any], list[Any]]] = []
        self._sets: list[tuple[set[Any], set[Any]]] = []
        self._classes: list[tuple[type, dict[str, Any]]] = []
        self._functions: list[tuple[types.FunctionType, tuple[Any, ...]]] = []
        self._seen: set[int] = set()
        self._kinds: dict[type, Callable[[Any, int], None] | None] = {}
        # The values still to visit, with their depth; the nearest come first.
        self._inside: deque[tuple[Iterable[Any], int]] = deque()
        with _no_collector():
            self._keep_modules()
            self._keep_list(sys.meta_path, _DEPTH)
            for table in _tables_of_operators():
                self._keep_table(table, _DEPTH)
            while self._inside:
                self._keep_values(*self._inside.popleft())
        del self._seen

    def _keep_modules(self) -> None:
        modules = {name: module for name, module in list(sys.modules.items()) if _is_torchs(name)}
        self._modules = modules
        self._seen.update(id(module) for module in modules.values())
        for name, module in modules.items():
            if name not in _CACHES and isinstance(module, types.ModuleType):
                self._keep_table(vars(module), 0, name)

    def _keep_values(self, values: Iterable[Any], depth: int) -> None:
        kinds, seen = self._kinds, self._seen
        for value in values:
            kind = type(value)
            try:
                keep = kinds[kind]
            except KeyError:
                keep = kinds[kind] = self._keeper(kind)
            if keep is not None and id(value) not in seen:
                keep(value, depth)

    def _keeper(self, kind: type) -> Callable[[Any, int], None] | None:
        """Return the method that copies instances of a class; None if they are not copied."""
        if issubclass(kind, dict):
            return self._keep_table
        if issubclass(kind, list):
            return self._keep_list
        if issubclass(kind, set):
            return self._keep_set
        if issubclass(kind, type):
            return self._keep_class
        if kind is types.FunctionType:
            return self._keep_function
        if not _is_torchs(kind.__module__) or kind.__module__ in _CACHES or issubclass(kind, types.ModuleType):
            return None
        if kind.__dictoffset__:
            return self._keep_object
        return self._keep_ordered_set if "_dict" in vars(kind) else None

    def _keep_table(self, table: dict[Any, Any], depth: int, name: str = "") -> None:
        self._seen.add(id(table))
        copy = dict.copy(table)
        self._tables.append((table, copy, name))
        if depth < _DEPTH:
            self._inside.append((copy.values(), depth + 1))

    def _keep_list(self, each: list[Any], depth: int) -> None:
        self._seen.add(id(each))
        copy = list(each)
        self._lists.append((each, copy))
        if depth < _DEPTH:
            self._inside.append((copy, depth + 1))

    def _keep_set(self, each: set[Any], depth: int) -> None:
        self._seen.add(id(each))
        self._sets.append((each, set.copy(each)))

    def _keep_class(self, kind: type, depth: int) -> None:
        self._seen.add(id(kind))
        if _is_torchs(getattr(kind, "__module__", None)):
            copy = dict(vars(kind))
            self._classes.append((kind, copy))
            self._inside.append((copy.values(), max(depth + 1, _DEPTH - 2)))

    def _keep_function(self, function: types.FunctionType, depth: int) -> None:
        self._seen.add(id(function))
        self._functions.append((function, _state(function)))

    def _keep_object(self, each: Any, depth: int) -> None:
        self._seen.add(id(each))
        self._keep_table(object.__getattribute__(each, "__dict__"), depth)

    def _keep_ordered_set(self, each: Any, depth: int) -> None:
        self._seen.add(id(each))
        self._keep_table(each._dict, _DEPTH)

    def changes(self) -> list[_Undo]:
        """Return functions that undo the changes since the copies were made, unless the values have changed again."""
        found: list[_Undo] = list(_changed_modules(self._modules))
        for table, before, name in self._tables:
            found += _changes_of_table(table, before, name)
        kept = {id(table) for table, _, _ in self._tables}
        for table in _tables_of_operators():
            found += _changes_of_table(table, {}, "") if id(table) not in kept else ()
        for sequence, elements in self._lists:
            if not _is_same(sequence, elements):
                found.append(functools.partial(_restore_list, sequence, elements, list(sequence)))
        for members, copy in self._sets:
            if members != copy:
                found.append(functools.partial(_restore_set, members, members - copy, copy - members))
        for kind, attributes in self._classes:
            for name, was, now in _differences(attributes, dict(vars(kind))):
                found.append(functools.partial(_restore_attribute, kind, name, was, now))
        for function, state in self._functions:
            if not _is_same(_state(function), state):
                found.append(functools.partial(_restore_function, function, state, _state(function)))
        return found


@contextlib.contextmanager
def _no_collector() -> Iterator[None]:
    """Disable Python's cycle collector, which would visit all objects again after every few hundred copies."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def _is_torchs(name: object) -> bool:
    return isinstance(name, str) and (name in ("torch", "functorch") or name.startswith(("torch.", "functorch.")))


def _is_upstreams(module: object) -> bool:
    """Return whether a module is torch's own, and not added by a folder."""
    return _is_file_of_torch(getattr(getattr(module, "__spec__", None), "origin", None))


def _is_file_of_torch(path: str | None) -> bool:
    import torch

    packages = Path(torch.__file__).parent.parent
    return not path or any(packages / name in Path(path).parents for name in ("torch", "functorch"))


def _operators() -> list[Any]:
    """Return the operators that have Python tables of kernels: overloads and higher-order operators."""
    import torch

    found = list(getattr(torch._ops, "_higher_order_ops", {}).values())
    kinds = torch._ops._OpNamespace, torch._ops.OpOverloadPacket, torch._ops.OpOverload
    spaces = [torch.ops]
    for kind in kinds:
        spaces = [each for space in spaces for each in list(vars(space).values()) if isinstance(each, kind)]
    return found + spaces


def _tables_of_operators() -> Iterator[dict[Any, Any]]:
    """Yield the kernel tables of operators that are not empty."""
    for operator in _operators():
        if operator.py_kernels:
            yield operator.py_kernels
        if operator.python_key_table:
            yield operator.python_key_table
        if operator.functorch_table:
            yield operator.functorch_table


def _clear_dispatch_caches() -> None:
    for operator in _operators():
        operator._dispatch_cache.clear()


def _state(function: types.FunctionType) -> tuple[Any, ...]:
    return function.__code__, function.__defaults__, function.__kwdefaults__, function.__doc__


def _is_same(now: Any, before: Any) -> bool:
    return len(now) == len(before) and all(map(is_, now, before))


def _differences(before: dict[Any, Any], now: dict[Any, Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the keys whose values differ, with both values; a missing one is ``_NOTHING``."""
    if len(before) == len(now) and all(map(is_, before, now)) and all(map(is_, before.values(), now.values())):
        return
    for key, value in now.items():
        was = before.get(key, _NOTHING)
        if was is not value:
            yield key, was, value
    for key, value in before.items():
        if key not in now:
            yield key, value, _NOTHING


def _changes_of_table(table: dict[Any, Any], before: dict[Any, Any], name: str) -> Iterator[_Undo]:
    for key, was, now in _differences(before, dict.copy(table)):
        is_import = name and isinstance(now, types.ModuleType) and sys.modules.get(f"{name}.{key}") is now
        if not (is_import and _is_upstreams(now)) and not (name and key in _LEFT_OUT):
            yield functools.partial(_restore_key, table, key, was, now)


def _changed_modules(before: dict[str, Any]) -> Iterator[_Undo]:
    for name, module in list(sys.modules.items()):
        if name not in before and _is_torchs(name) and not _is_upstreams(module):
            yield functools.partial(_restore_key, sys.modules, name, _NOTHING, module)


def _restore_key(table: dict[Any, Any], key: Any, before: Any, after: Any) -> None:
    if table.get(key, _NOTHING) is after:
        if before is _NOTHING:
            table.pop(key, None)
        else:
            table[key] = before


def _forget_copies(made: Iterable[_Undo]) -> None:
    """Remove functions of undone texts from torch's other tables, too. Calls copy them there: torch.distributions.kl
    caches the function for two classes.
    """
    after = (undo.args[-1] for undo in made if isinstance(undo, functools.partial) and undo.func is _restore_key)
    functions = (each for each in after if isinstance(each, types.FunctionType))
    gone = {id(each) for each in functions if not _is_file_of_torch(each.__code__.co_filename)}
    modules = [module for name, module in list(sys.modules.items()) if gone and _is_torchs(name)]
    values = [value for module in modules if isinstance(module, types.ModuleType) for value in vars(module).values()]
    for table in [value for value in values if issubclass(type(value), dict)]:  # isinstance makes some values warn
        for key in [key for key, value in dict.copy(table).items() if id(value) in gone]:
            dict.pop(table, key, None)


def _restore_attribute(kind: type, name: str, before: Any, after: Any) -> None:
    if vars(kind).get(name, _NOTHING) is after:
        # Attributes such as __weakref__ cannot be set.
        with contextlib.suppress(AttributeError, TypeError):
            if before is _NOTHING:
                type.__delattr__(kind, name)
            else:
                type.__setattr__(kind, name, before)


def _restore_function(function: types.FunctionType, before: tuple[Any, ...], after: tuple[Any, ...]) -> None:
    for name, was, now in zip(_OF_FUNCTIONS, before, after, strict=True):
        if was is not now and getattr(function, name) is now:
            setattr(function, name, was)


def _restore_set(members: set[Any], added: set[Any], removed: set[Any]) -> None:
    members -= added
    members |= removed


def _restore_list(sequence: list[Any], before: list[Any], after: list[Any]) -> None:
    """Remove added elements. Put removed ones back after the element that they followed."""
    if _is_same(sequence, after):
        sequence[:] = before
        return
    for element in _without(after, before):
        if (place := _place(sequence, element)) is not None:
            del sequence[place]
    for element in _without(before, after):
        earlier = (_place(sequence, each) for each in reversed(before[: _place(before, element)]))
        sequence.insert(next((place + 1 for place in earlier if place is not None), 0), element)


def _without(elements: list[Any], others: list[Any]) -> list[Any]:
    """Return the elements that ``others`` lacks, or has fewer times."""
    rest = list(others)
    missing = []
    for element in elements:
        if (place := _place(rest, element)) is None:
            missing.append(element)
        else:
            del rest[place]
    return missing


def _place(elements: list[Any], element: Any) -> int | None:
    """Return the last index of an object, by identity; None if it is absent."""
    return next((place for place in reversed(range(len(elements))) if elements[place] is element), None)


def _destroy(library: Any) -> None:
    """Remove the registrations of a ``torch.library.Library``."""
    import torch

    for name in library._op_defs:
        base, _, overload = name.partition(".")
        torch.fx.operator_schemas._SCHEMA_TO_SIGNATURE_CACHE.pop((base, overload), None)
        _invalidate(base, overload or "default")
    torch.library._defs.difference_update(library._op_defs)
    library._destroy()
    # The library's finalizer shares these sets. When it runs, after the last reference, these names may be registered
    # again.
    library._op_defs.clear()
    library._op_impls.clear()


def _invalidate(base: str, overload: str) -> None:
    """Make calls of an operator raise. Its definition is about to be released, and calls would read freed memory."""
    import torch

    def removed(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"{base} is no longer defined: the Python text that defined it was undone")

    namespace, _, name = base.partition("::")
    packet = vars(getattr(torch.ops, namespace)).get(name)
    if packet is not None:
        packet._op = removed
        if operator := vars(packet).get(overload):
            torch._ops.get_cached_ops().discard(operator)
            operator._op = operator._op_dk = removed


@contextlib.contextmanager
def _watched_libraries() -> Iterator[None]:
    """Wrap ``torch.library.Library``, so that recorded registrations go into libraries of the recording."""
    import torch

    library = torch.library.Library
    before = {name: vars(library)[name] for name in ("__init__", *_REGISTERING) if name in vars(library)}
    for name, upstreams in before.items():
        setattr(library, name, (_added if name == "__init__" else _redirected)(upstreams))
    try:
        yield
    finally:
        for name, upstreams in before.items():
            setattr(library, name, upstreams)


def _added(upstreams: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(upstreams)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        upstreams(self, *args, **kwargs)
        if recording := Changes._recording():
            recording._libraries.append(self)

    return __init__


def _redirected(upstreams: Callable[..., Any]) -> Callable[..., Any]:
    has_level = upstreams.__name__ == "_register_fake"

    @functools.wraps(upstreams)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if has_level and len(args) < 3:
            kwargs["_stacklevel"] = kwargs.get("_stacklevel", 1) + 1
        recording = Changes._recording()
        return upstreams(recording._own(self) if recording else self, *args, **kwargs)

    return method


@contextlib.contextmanager
def _watched_imports() -> Iterator[None]:
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Finder:
    """Pauses the recording while a module is imported that no folder adds to torch."""

    def __init__(self) -> None:
        self._looking: set[str] = set()

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if Changes._recording() is None or name in self._looking or name.partition(".")[0] in sys.stdlib_module_names:
            return None
        self._looking.add(name)
        try:
            specs = (finder.find_spec(name, path, target) for finder in list(sys.meta_path) if finder is not self)
            spec = next((spec for spec in specs if spec), None)
        finally:
            self._looking.discard(name)
        is_folders = spec and _is_torchs(name) and not _is_file_of_torch(spec.origin)
        if spec and not is_folders and isinstance(spec.loader, _FILE_LOADERS):
            _pause_during(spec.loader)
        return spec


def _pause_during(loader: Any) -> None:
    upstreams = loader.exec_module

    def exec_module(module: types.ModuleType) -> None:
        loader.exec_module = upstreams
        recording = Changes._recording()
        with recording._paused() if recording else contextlib.nullcontext():
            upstreams(module)

    loader.exec_module = exec_module
