"""Record what the Python files of native folders change in torch's modules, and undo it."""

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
from operator import attrgetter, delitem, is_, setitem
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

# Stands for a missing value. A second import of this module has the same object, as earlier recordings need.
_NOTHING: Any = MISSING
# How deep containers in modules are searched: tables of tables, lists of objects with tables.
_DEPTH = 4
# Modules that looking up operators fills. They are never restored: a lost entry would not come back.
_CACHES = {"torch._ops", "torch.ops", "torch.jit._builtins", "torch._classes", "torch.classes"}
_LEFT_OUT = {"__builtins__", "__warningregistry__"}
_OF_FUNCTIONS = ("__code__", "__defaults__", "__kwdefaults__", "__doc__")
_state = attrgetter(*_OF_FUNCTIONS)
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
        # Libraries that were created while recording, each with the older one that it stands in for, or itself.
        self._libraries: list[tuple[Any, Any]] = []
        self._thread = 0

    @contextlib.contextmanager
    def recorded(self) -> Iterator[None]:
        """Record what the body changes. If it raises, undo everything recorded since the last ``undo``; in an import
        that pauses another recording of this object, only what the body changed.
        """
        if self._kept is not None:
            yield
            return
        with contextlib.ExitStack() as stack:
            if self._stack:
                stack.enter_context(self._stack[-1]._paused())
            else:
                _watch_imports(stack)
                _watch_libraries(stack)
            begun = (len(self._made), len(self._libraries)) if self in self._stack else (0, 0)
            self._stack.append(self)
            stack.callback(self._stack.pop)
            self._thread = threading.get_ident()
            self._kept = _Kept()
            try:
                yield
            except BaseException:
                self._collect()
                self._undo_since(*begun)
                raise
            finally:
                self._collect()

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
        for library, _ in reversed(released):
            _destroy(library)
        for operator in _operators():
            operator._dispatch_cache.clear()

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
        for ours, older in self._libraries:
            if library is ours or library is older:
                return ours
        kind = "IMPL" if library.kind == "IMPL" else "FRAGMENT"
        stand_in = type(library)(library.ns, kind, library.dispatch_key)
        self._libraries[-1] = stand_in, library  # which the wrapped constructor has added
        return stand_in


_Undo = Callable[[], None]


class _Kind(NamedTuple):
    """A kind of container: how its content is read, as a dictionary, how a key of it is set and removed, and the depth
    at which the containers in it are no longer copied.
    """

    read: Callable[[Any], dict[Any, Any]]
    put: Callable[[Any, Any, Any], Any]
    remove: Callable[[Any, Any], Any]
    end: float


_TABLE = _Kind(dict.copy, setitem, delitem, _DEPTH)
_SET = _Kind(dict.fromkeys, lambda members, key, _: members.add(key), set.discard, 0)
_FUNCTION = _Kind(lambda function: dict(zip(_OF_FUNCTIONS, _state(function), strict=True)), setattr, delattr, 0)
_CLASS = _Kind(lambda kind: dict(vars(kind)), type.__setattr__, type.__delattr__, float("inf"))


class _Kept:
    """Copies of everything in torch that texts may change."""

    def __init__(self) -> None:
        self._modules = {name: module for name, module in list(sys.modules.items()) if _is_torchs(name)}
        # Each container with its content, its kind, and its name if it is a module's.
        self._containers: list[tuple[Any, dict[Any, Any], _Kind, str]] = []
        self._lists: list[tuple[list[Any], list[Any]]] = []
        self._functions: list[tuple[types.FunctionType, tuple[Any, ...]]] = []
        self._seen = {id(module) for module in self._modules.values()}
        self._kinds: dict[type, Callable[[Any, int], None] | None] = {}
        # The values still to visit, with their depth; the nearest come first.
        self._inside: deque[tuple[Iterable[Any], int]] = deque()
        # Python's cycle collector would visit all objects again after every few hundred copies.
        is_collecting = gc.isenabled()
        gc.disable()
        try:
            self._keep_all()
        finally:
            if is_collecting:
                gc.enable()
        del self._seen

    def _keep_all(self) -> None:
        for name, module in self._modules.items():
            if name not in _CACHES and isinstance(module, types.ModuleType):
                self._keep(vars(module), 0, _TABLE, name)
        self._keep_list(sys.meta_path, _DEPTH)
        for table in _tables_of_operators():
            self._keep(table, _DEPTH, _TABLE)
        while self._inside:
            self._keep_values(*self._inside.popleft())

    def _keep_values(self, values: Iterable[Any], depth: int) -> None:
        kinds, seen = self._kinds, self._seen
        for value in values:
            kind = type(value)
            try:
                keep = kinds[kind]
            except KeyError:
                keep = kinds[kind] = self._keeper(kind)
            if keep is not None and id(value) not in seen:
                seen.add(id(value))
                keep(value, depth)

    def _keeper(self, kind: type) -> Callable[[Any, int], None] | None:
        """Return the function that copies an instance of a class at a depth; None if they are not copied."""
        if issubclass(kind, list):
            return self._keep_list
        if issubclass(kind, type):
            return self._keep_class
        if issubclass(kind, dict):
            return functools.partial(self._keep, kind=_TABLE)
        if issubclass(kind, set):
            return functools.partial(self._keep, kind=_SET)
        if kind is types.FunctionType:
            return lambda function, _: self._functions.append((function, _state(function)))
        if not _is_torchs(kind.__module__) or kind.__module__ in _CACHES or issubclass(kind, types.ModuleType):
            return None
        if kind.__dictoffset__:
            return lambda each, depth: self._keep(object.__getattribute__(each, "__dict__"), depth, _TABLE)
        return (lambda ordered, _: self._keep(ordered._dict, _DEPTH, _TABLE)) if "_dict" in vars(kind) else None

    def _keep(self, each: Any, depth: int, kind: _Kind, name: str = "") -> None:
        content = kind.read(each)
        self._containers.append((each, content, kind, name))
        if depth < kind.end:
            self._inside.append((content.values(), depth + 1))

    def _keep_list(self, each: list[Any], depth: int) -> None:
        content = list(each)
        self._lists.append((each, content))
        if depth < _DEPTH:
            self._inside.append((content, depth + 1))

    def _keep_class(self, kind: type, depth: int) -> None:
        if _is_torchs(getattr(kind, "__module__", None)):
            self._keep(kind, max(depth, _DEPTH - 3), _CLASS)

    def changes(self) -> list[_Undo]:
        """Return functions that undo the changes since the copies were made, unless the values have changed again."""
        new = [(name, module) for name, module in list(sys.modules.items()) if name not in self._modules]
        found: list[_Undo] = [
            functools.partial(_restore, _TABLE, sys.modules, name, _NOTHING, module)
            for name, module in new
            if _is_torchs(name) and not _is_upstreams(module)
        ]
        for each, before, kind, name in self._containers:
            now = kind.read(each)
            if not (_is_same(now, before) and all(map(is_, now.values(), before.values()))):
                found += _changes_of(each, before, now, kind, name)
        kept = {id(each) for each, *_ in self._containers}
        for table in _tables_of_operators():
            found += _changes_of(table, {}, table, _TABLE) if id(table) not in kept else ()
        for sequence, elements in self._lists:
            if not _is_same(sequence, elements):
                found.append(functools.partial(_restore_list, sequence, elements, list(sequence)))
        for function, state in self._functions:
            if not _is_same(_state(function), state):
                before = dict(zip(_OF_FUNCTIONS, state, strict=True))
                found += _changes_of(function, before, _FUNCTION.read(function), _FUNCTION)
        return found


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
        yield from filter(None, (operator.py_kernels, operator.python_key_table, operator.functorch_table))


def _is_same(now: Any, before: Any) -> bool:
    return len(now) == len(before) and all(map(is_, now, before))


def _changes_of(each: Any, before: dict[Any, Any], now: dict[Any, Any], kind: _Kind, name: str = "") -> Iterator[_Undo]:
    """Yield functions that restore the values of the keys that differ; a missing value is ``_NOTHING``."""
    for key in {**now, **before}:
        was, value = before.get(key, _NOTHING), now.get(key, _NOTHING)
        is_import = name and isinstance(value, types.ModuleType) and sys.modules.get(f"{name}.{key}") is value
        if was is not value and not (is_import and _is_upstreams(value)) and not (name and key in _LEFT_OUT):
            yield functools.partial(_restore, kind, each, key, was, value)


def _restore(kind: _Kind, each: Any, key: Any, before: Any, after: Any) -> None:
    if kind.read(each).get(key, _NOTHING) is after:
        # Attributes of classes such as __weakref__ cannot be set.
        with contextlib.suppress(AttributeError, TypeError):
            if before is _NOTHING:
                kind.remove(each, key)
            else:
                kind.put(each, key, before)


def _forget_copies(made: Iterable[_Undo]) -> None:
    """Remove functions of undone texts from torch's other tables, too. Calls copy them there: torch.distributions.kl
    caches the function for two classes.
    """
    after = (undo.args[-1] for undo in made if isinstance(undo, functools.partial) and undo.func is _restore)
    functions = (each for each in after if isinstance(each, types.FunctionType))
    gone = {id(each) for each in functions if not _is_file_of_torch(each.__code__.co_filename)}
    modules = [module for name, module in list(sys.modules.items()) if gone and _is_torchs(name)]
    values = [value for module in modules if isinstance(module, types.ModuleType) for value in vars(module).values()]
    for table in [value for value in values if issubclass(type(value), dict)]:  # isinstance makes some values warn
        for key in [key for key, value in dict.copy(table).items() if id(value) in gone]:
            dict.pop(table, key, None)


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


def _watch_libraries(stack: contextlib.ExitStack) -> None:
    """Wrap ``torch.library.Library``, so that recorded registrations go into libraries of the recording."""
    import torch

    library = torch.library.Library
    for name in ("__init__", *_REGISTERING):
        if upstreams := vars(library).get(name):
            stack.callback(setattr, library, name, upstreams)
            setattr(library, name, (_added if name == "__init__" else _redirected)(upstreams))


def _added(upstreams: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(upstreams)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        upstreams(self, *args, **kwargs)
        if recording := Changes._recording():
            recording._libraries.append((self, self))

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


def _watch_imports(stack: contextlib.ExitStack) -> None:
    finder = _Finder()
    sys.meta_path.insert(0, finder)
    stack.callback(sys.meta_path.remove, finder)


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
