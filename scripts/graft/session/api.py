"""The functions of the package ``graft``: ``load``, ``load_inline``, ``build``, ``swap``, ``unload``, ``loaded``."""

from __future__ import annotations

import logging
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeAlias

from ..core.console import WARNING, Listener, heard_by, retold, say
from ..core.errors import GraftError, UsageError
from ..core.extra_flags import ExtraFlags, extra_flags
from ..core.layout import expanded
from ..core.system_errors import refused
from ..inputs.spelling import name_of
from . import loads, watching
from .builder import VARIABLE, build_elsewhere, end_idle, required
from .building import Wanted, find, operators_in, wanted
from .call_guards import in_terms_of_graft, outside, uncompiled
from .contents import folder_with, require_name
from .progress import Line, ipython
from .records import Record, contents_of, files_of, hashes_of, record_of, save, sources_of

if TYPE_CHECKING:
    from ..inputs.snapshot import Snapshot
    from .cell import Written
    from .inline import Texts
    from .text_messages import TextMessages

_LOGGER = logging.getLogger("graft")
# Show progress for a build that takes longer than this, in seconds.
_SHOWN_AFTER = 2.0
# On 2 cores, as the README has it. A script shows no later line until the end.
_TAKES = " (the first build takes up to a minute, one after an edit seconds)"


class Operators:
    """The operators of a load. ``ops.soft_clip(x)`` always calls the code that is loaded now. A ``with`` block unloads
    them at its end.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        import torch

        load = loads.state().loads.get(self._name)
        if load is None:
            raise AttributeError(f"{name}: the load {self._name} was unloaded")
        for operator in load.operators:
            if name_of(operator) == name:
                space = operator.partition("::")[0]
                function = getattr(torch._C._VariableFunctions, name, None) if space == "aten" else None
                return function or getattr(getattr(torch.ops, space), name)
        raise AttributeError(f"{self._name} has no operator {name}, but {', '.join(dir(self)) or 'none'}")

    def __dir__(self) -> list[str]:
        load = loads.state().loads.get(self._name)
        return sorted({*map(name_of, load.operators)}) if load else []

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the sources. Unpickling loads operators that are not loaded; it builds them only if ``GRAFT_BUILD=1``.

        Raises:
            UsageError: the load was unloaded, or its folder was edited since or has settings in pyproject.toml.
        """
        load = loads.state().loads.get(self._name)
        if load is None:
            raise UsageError(f"{self._name}: it was unloaded, so it cannot be pickled", todo="load it again")
        note = load.note
        return unpickled, (self._name, sources_of(load), note["flags"], note["owner"], note["calls"])

    def __repr__(self) -> str:
        return f"<operators of {self._name}: {', '.join(dir(self)) or 'none'}>"

    def __enter__(self) -> Operators:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        unload(self._name)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the texts of ``load_inline`` as a native folder, to ship or to edit. Return its path.

        Raises:
            UsageError: the folder has other files, or the operators were loaded from a folder.
        """
        return save(self._name, folder)


@uncompiled
@in_terms_of_graft
def load(
    folder: str | os.PathLike[str],
    *,
    name: str = "",
    verbose: bool = False,
    build: bool | None = None,
    watch: bool | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str | Path] | None = None,
) -> Operators:
    """Build the operators of a native folder and add them to the torch of this process. Call it again after an edit.

    Builds are kept in ``GRAFT_HOME``, by default ``~/.cache/graft``. Objects take at most 4 GB; ``graft clean`` deletes
    everything. ``MAX_JOBS`` limits the number of compilers that run at once. CUDA kernels are compiled for the GPUs of
    this machine. If several processes need the same build, one builds it, and the others wait for at most
    ``GRAFT_LOCK_TIMEOUT`` seconds.

    Args:
        folder: the native folder.
        name: the name of the load; by default that of the folder. An earlier load of this name is replaced.
        verbose: whether to print the progress. Otherwise it goes to the logger ``graft``, as do warnings.
        build: whether to build operators that are not built yet. By default, only ``GRAFT_BUILD=0`` prevents it.
        watch: whether to build in the background after each save, until ``unload``. ``swap`` loads the new build; a
            notebook calls it before each cell, and so does each later ``load``. None keeps the setting.
        extra_cflags: flags of the C++ compiler for the folder's sources.
        extra_cuda_cflags: flags of nvcc.
        extra_include_paths: folders of headers.

    Raises:
        BuildError: the folder has errors; ``findings`` has their places. The process keeps the operators that it had.
        MissingError: the operators are not built, and building is off.
        GraftError: something else failed; for example, no compiler was found.
    """
    extra = extra_flags(extra_cflags, extra_cuda_cflags, extra_include_paths)
    with _system_errors():
        return _load(_wanted_of(folder, name, extra), verbose, _may_build(build), watch)


@uncompiled
@in_terms_of_graft
def load_inline(
    functions: str,
    *,
    derivatives: str = "",
    cpp: str = "",
    cpu: str = "",
    cuda: str = "",
    autocast: str = "",
    headers: Mapping[str, str] | None = None,
    python: Mapping[str, str] | None = None,
    docs: Mapping[str, str] | None = None,
    name: str = "",
    verbose: bool = False,
    build: bool | None = None,
    build_directory: str | os.PathLike[str] | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str | Path] | None = None,
) -> Operators:
    """Like ``load``, but take the files of a native folder as texts.

    Args:
        functions: native_functions.yaml; or one schema, whose kernel is in ``cpp``.
        derivatives: derivatives.yaml.
        cpp: the C++ of the operators. If it lacks ``namespace at::native``, that and the usual includes are added.
        cpu: kernels that are compiled for each CPU capability, as in ``cpu/``.
        cuda: kernels for CUDA, as in ``cuda/``.
        autocast: autocast.yaml.
        headers: headers, by path.
        python: Python that extends modules of torch, by path: ``_decomp/decompositions.py``.
        docs: docstrings, by operator.
        name: the name of the load; by default that of the first operator. An earlier load of this name is replaced.
        verbose: whether to print the progress. Otherwise it goes to the logger ``graft``.
        build: whether to build operators that are not built yet. By default, only ``GRAFT_BUILD=0`` prevents it.
        build_directory: a folder to write the texts to; by default one in the cache folder.
        extra_cflags: flags of the C++ compiler for these sources.
        extra_cuda_cflags: flags of nvcc.
        extra_include_paths: folders of headers.

    Raises:
        BuildError: a text has errors; ``findings`` has their places. The process keeps the operators that it had.
        MissingError: the operators are not built, and building is off.
        GraftError: something else failed; for example, no compiler was found.
    """
    from .inline import Texts  # slow to import

    texts = Texts(functions, derivatives, cpp, cpu, cuda, autocast, headers or {}, python or {}, docs or {})
    flags = (extra_cflags, extra_cuda_cflags, extra_include_paths)
    return load_texts(texts, name, verbose, build, flags, build_directory)


# The arguments for compilers of the functions above.
Flags: TypeAlias = tuple[Sequence[str] | None, Sequence[str] | None, Sequence[str | Path] | None]


def load_texts(
    texts: Texts,
    name: str,
    verbose: bool,
    build: bool | None,
    flags: Flags,
    build_directory: str | os.PathLike[str] | None = None,
    *,
    cell: Written | None = None,
) -> Operators:
    """Load texts. Messages name places in them, or in the ``cell`` that they were made from. The other arguments are
    those of ``load_inline``.
    """
    from .text_messages import TextMessages

    told = TextMessages(texts, cell)
    cflags, cuda_cflags, include_paths = flags
    extra = extra_flags([*texts.cflags, *(cflags or ())], [*texts.cflags, *(cuda_cflags or ())], include_paths)
    chosen = require_name(name or texts.name)
    try:
        with _system_errors(), retold(told.of):
            if build_directory:
                folder = expanded(os.fspath(build_directory))
                texts.write(folder)
            else:
                folder = folder_with(chosen, {path: text.encode() for path, text in texts.files().items()})
            what = wanted(folder, chosen, extra, "" if build_directory else _owner(chosen))
        return _load(what, verbose, _may_build(build), messages=told, is_cell=cell is not None)
    except GraftError as error:
        raise told.retold(error) from None


@uncompiled
def build(
    folder: str | os.PathLike[str],
    *,
    name: str = "",
    verbose: bool = False,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str | Path] | None = None,
) -> Path:
    """Build the operators that ``load`` with the same arguments would load, but do not load them. Return the folder of
    the build, in ``GRAFT_HOME``. Useful for container images, CI, and the first of many processes.

    Raises:
        BuildError: the folder has errors; ``findings`` has their places.
        GraftError: something else failed; for example, no compiler was found.
    """
    extra = extra_flags(extra_cflags, extra_cuda_cflags, extra_include_paths)
    with _system_errors(), loads.state().lock:
        return _built(_calling(_wanted_of(folder, name, extra)), verbose)


@uncompiled
def swap() -> list[str]:
    """Load the new builds of folders with ``load(..., watch=True)``. Return the names of the loads that changed. In a
    trace or in ``torch._graft.stock()``, do nothing; a later call loads them.
    """
    with _heard(False, _LOGGER.log):
        changed = watching.swap()
    if changed:
        with _system_errors(), outside("graft.swap"), loads.state().lock:
            _build_outdated(False, _may_build(None))
    return changed


def _swap_before_cells() -> None:
    """Let IPython, if it runs, call ``graft.swap`` before each cell."""
    shell = ipython()
    if shell and _before_cell not in shell.events.callbacks["pre_run_cell"]:
        shell.events.register("pre_run_cell", _before_cell)


def _before_cell(*_: Any) -> None:
    swap()


@uncompiled
def unload(name: str) -> None:
    """Undo a load: remove the operators that it added, and restore those that it replaced."""
    with outside("graft.unload"):
        watching.stop(name)
        loads.unload(name)


def loaded() -> dict[str, Record]:
    """Map the name of each load to its record: plain data, which processes can compare."""
    return {name: record_of(load) for name, load in loads.state().loads.items()}


def _wanted_of(folder: str | os.PathLike[str], name: str, extra: ExtraFlags) -> Wanted:
    """Describe the load of a user's folder. Without ``name``, it has the name of the folder."""
    path = expanded(os.fspath(folder))
    chosen = require_name(name or re.sub(r"[^\w.-]|^\.", "_", path.name))
    return wanted(path, chosen, extra)


def _load(
    what: Wanted,
    verbose: bool,
    may_build: bool,
    watch: bool | None = None,
    messages: TextMessages | None = None,
    *,
    is_cell: bool = False,
) -> Operators:
    def judge(snapshot: Snapshot) -> None:
        loads.taken_from(what.name, operators_in(snapshot.read), is_cell=is_cell)

    with _system_errors(), outside("graft.load"), loads.state().lock:
        with retold(messages.of) if messages else nullcontext():
            built = _built(what := _calling(what), verbose, may_build, judge)
            with _heard(verbose, _LOGGER.log):
                loads.use(what.name, built, what.folder, is_cell=is_cell, messages=messages)
        with _heard(verbose, _LOGGER.log):
            if watch is not None:
                watching.stop(what.name)
            if watch:
                end_idle()
                watching.start(what)
                _swap_before_cells()
            watching.swap(but=what.name)
        _build_outdated(verbose, may_build)
    return Operators(what.name)


def _calling(what: Wanted) -> Wanted:
    """Add the operators of other loads that what is wanted may call. The caller holds the lock."""
    return replace(what, declared={**what.declared, **loads.declared(what.name)})


def _build_outdated(verbose: bool, may_build: bool) -> None:
    """Build and load again what calls operators of other loads that have another schema now; and let the processes that
    build watched folders know the operators of all loads.
    """
    for load, calls in loads.outdated() if may_build else ():
        loads.state().tried[load.name] = calls
        what = wanted(load.folder, load.name, ExtraFlags.from_settings(load.note["flags"]), load.note["owner"])
        with retold(load.messages.of) if load.messages else nullcontext(), _heard(verbose, _LOGGER.log):
            try:
                if files_of(load) is None:
                    raise UsageError(f"{load.folder}: it was edited since", todo="load it again")
                built, kept = _built(_calling(what), verbose), {"taken": load.taken, "messages": load.messages}
                loads.use(load.name, built, load.folder, is_cell=load.is_cell, **kept)
            except GraftError as error:
                reason = str(error).splitlines()[0]
                what_for = "it calls an operator that has another schema now, and was not built again"
                say(f"{load.name}: {what_for}: {reason}", WARNING)
    watching.renew()


def _built(
    what: Wanted, verbose: bool, may_build: bool = True, judge: Callable[[Snapshot], object] = lambda _: None
) -> Path:
    """Return the folder of the build to load. Build it first if something changed, unless ``judge`` refuses that."""
    with _heard(verbose, log_build):
        found = find(what)
    if isinstance(found, Path):
        return found
    judge(found)
    if not may_build:
        raise required(what)
    with _shown(what.name) as listener, _heard(verbose, listener):
        return build_elsewhere(what, found)


def _may_build(given: bool | None, by_default: bool = True) -> bool:
    """Return whether building is allowed: as given, else as ``GRAFT_BUILD`` says, else ``by_default``."""
    return given if given is not None else {"0": False, "1": True}.get(os.environ.get(VARIABLE, ""), by_default)


def _owner(name: str) -> str:
    """Identify the builds of texts that replace each other: those with this name, working folder and program."""
    folder = ""
    with suppress(FileNotFoundError):  # the working folder was deleted
        folder = str(Path.cwd())
    return "\0".join([name, folder, *sys.argv[:1]])


def unpickled(
    name: str, files: Mapping[str, bytes], flags: Sequence[str], owner: str, calls: Mapping[str, str] = {}
) -> Operators:
    """Load pickled operators, unless the same sources are loaded. Build them only if ``GRAFT_BUILD=1``."""
    there = loads.state().loads.get(name)
    if there is None or contents_of(there.note) != hashes_of(files):
        folder, extra = folder_with(name, files), ExtraFlags.from_settings(flags)
        what = replace(wanted(folder, name, extra, owner), declared=calls)
        _load(what, False, _may_build(None, by_default=False))
    return Operators(name)


@contextmanager
def _system_errors() -> Iterator[None]:
    """Convert an ``OSError`` of the body to a ``RefusedError``, which has a remedy."""
    try:
        yield
    except OSError as error:
        raise refused(error) from error


@contextmanager
def _heard(verbose: bool, listener: Listener) -> Iterator[None]:
    """While the body runs, print its messages if ``verbose``; otherwise pass them to ``listener``."""
    if verbose:
        yield
        return
    with heard_by(listener):
        yield


@contextmanager
def _shown(name: str) -> Iterator[Listener]:
    """Show one line of progress if the build of ``name`` takes long. Yield the listener that logs and shows it."""
    line, began, end = Line(ipython(), _SHOWN_AFTER, _TAKES), time.monotonic(), "not built"

    def listener(level: int, text: str) -> None:
        log_build(level, text)
        if level < logging.WARNING:
            line.update(f"graft: {name}: {text.splitlines()[0] if text else ''}")

    try:
        yield listener
        end = "built"
    finally:
        if line.is_shown:
            line.end(f"graft: {name}: {end} in {time.monotonic() - began:.1f} s")


def log_build(level: int, text: str) -> None:
    """Log a line of a build. Log each warning once in a process: every build after an edit repeats it."""
    told = loads.state().told
    if level < logging.WARNING or text not in told:
        _LOGGER.log(level, text)
        told.add(text)
