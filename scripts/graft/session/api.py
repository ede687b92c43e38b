"""``graft.load``, ``graft.load_inline``, ``graft.unload``, ``graft.loaded``."""

from __future__ import annotations

import hashlib
import logging
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..core.console import Listener, heard_by
from ..core.errors import UsageError
from ..core.extra_flags import NO_EXTRA, ExtraFlags, extra_flags
from ..core.layout import HOME, expanded
from ..core.system_errors import refused
from . import loads
from .around import outside, uncompiled
from .building import build
from .names import functions

if TYPE_CHECKING:
    from .inline import Texts

_LOGGER = logging.getLogger("graft")


class Operators:
    """The operators of a load. ``ops.soft_clip(x)`` always calls the code that is loaded now; with ``with``, they are
    unloaded at its end.
    """

    def __init__(self, name: str, texts: Texts | None = None) -> None:
        self._name = name
        self._texts = texts

    def __getattr__(self, name: str) -> Any:
        import torch

        load = loads.state().loads.get(self._name)
        if load is None:
            raise AttributeError(f"{name}: the load {self._name} was unloaded")
        for operator in load.note["operators"]:
            space, _, rest = operator.partition("::")
            if rest.partition(".")[0] == name:
                function = getattr(torch._C._VariableFunctions, name, None) if space == "aten" else None
                return function or getattr(getattr(torch.ops, space), name)
        raise AttributeError(f"{self._name} has no operator {name}, but {', '.join(dir(self)) or 'none'}")

    def __dir__(self) -> list[str]:
        load = loads.state().loads.get(self._name)
        return sorted(functions(load.note)) if load else []

    def __repr__(self) -> str:
        return f"<operators of {self._name}: {', '.join(dir(self)) or 'none'}>"

    def __enter__(self) -> Operators:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        unload(self._name)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the texts of ``load_inline`` as a native folder, to ship or to edit. Return its path.

        Raises:
            UsageError: the folder has other files, or the operators are from a folder already.
        """
        if self._texts is None:
            raise UsageError(f"{self._name}: it was loaded from a folder", todo="copy that")
        return self._texts.save(os.fspath(folder))


@uncompiled
def load(
    folder: str | os.PathLike[str],
    *,
    name: str = "",
    verbose: bool = False,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str | Path] | None = None,
) -> Operators:
    """Build the operators of a native folder and add them to the torch of this process; again after an edit.

    What is compiled is kept in ``GRAFT_HOME``, or ``~/.cache/graft``: objects take at most 2 GB, and ``graft clean``
    deletes all. ``MAX_JOBS`` bounds the number of compilers. CUDA kernels are compiled for the GPUs of this machine.

    Args:
        folder: the native folder.
        name: the name of the load; by default that of the folder. The same name again replaces.
        verbose: whether to print the progress. Otherwise it goes to the logger ``graft``, as do warnings.
        extra_cflags: flags of the C++ compiler for the folder's sources.
        extra_cuda_cflags: flags of nvcc.
        extra_include_paths: folders of headers.

    Raises:
        BuildError: the folder is wrong; ``findings`` are the places. The process keeps what it had.
        GraftError: something else is in the way, such as a missing compiler.
    """
    path = expanded(os.fspath(folder))
    extra = extra_flags(extra_cflags, extra_cuda_cflags, extra_include_paths)
    return _load(path, name or path.name, verbose, extra)


@uncompiled
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
    build_directory: str | os.PathLike[str] | None = None,
    extra_cflags: Sequence[str] | None = None,
    extra_cuda_cflags: Sequence[str] | None = None,
    extra_include_paths: Sequence[str | Path] | None = None,
) -> Operators:
    """Like ``load``, from the files of a native folder as text.

    Args:
        functions: native_functions.yaml; or one schema, whose kernel is in ``cpp``.
        derivatives: derivatives.yaml.
        cpp: the C++ of the operators. Without ``namespace at::native``, it gets that, and the usual includes.
        cpu: kernels that are compiled for each CPU capability, as in ``cpu/``.
        cuda: kernels for CUDA, as in ``cuda/``.
        autocast: autocast.yaml.
        headers: headers, by path.
        python: Python that extends modules of torch, by path: ``_decomp/decompositions.py``.
        docs: docstrings, by operator.
        name: the name of the load; by default that of the first operator. The same name again replaces.
        verbose: whether to print the progress. Otherwise it goes to the logger ``graft``.
        build_directory: the folder for the texts; by default one in the cache folder.
        extra_cflags: flags of the C++ compiler for these sources.
        extra_cuda_cflags: flags of nvcc.
        extra_include_paths: folders of headers.

    Raises:
        BuildError: a text is wrong; ``findings`` are the places. The process keeps what it had.
        GraftError: something else is in the way, such as a missing compiler.
    """
    from .inline import Texts  # slow to import

    texts = Texts(functions, derivatives, cpp, cpu, cuda, autocast, headers or {}, python or {}, docs or {})
    extra = extra_flags(
        [*texts.cflags, *(extra_cflags or ())], [*texts.cflags, *(extra_cuda_cflags or ())], extra_include_paths
    )
    chosen = name or texts.name
    folder = expanded(os.fspath(build_directory)) if build_directory else _folder_of(chosen)
    with _system_errors():
        texts.write(folder)
    return _load(folder, chosen, verbose, extra, texts)


@uncompiled
def unload(name: str) -> None:
    """Take a load back: operators that it added are gone, and those that it replaced are as before."""
    with outside("graft.unload"):
        loads.unload(name)


def loaded() -> dict[str, Operators]:
    """Return what is loaded, by name."""
    return {name: Operators(name) for name in loads.state().loads}


def _load(
    folder: Path, name: str, verbose: bool, extra: ExtraFlags = NO_EXTRA, texts: Texts | None = None
) -> Operators:
    with _system_errors(), outside("graft.load"), loads.state().lock:
        with _heard(verbose, _log_build):
            built = build(folder, name, extra)
        with _heard(verbose, _LOGGER.log):
            loads.use(name, built)
    return Operators(name, texts)


def _folder_of(name: str) -> Path:
    """Return the folder for the texts of a load: another for each program, so that two may use one name."""
    program = hashlib.sha256("\0".join([str(Path.cwd()), *sys.argv[:1]]).encode()).hexdigest()[:8]
    return HOME / "inline" / f"{name}-{program}"


@contextmanager
def _system_errors() -> Iterator[None]:
    """Raise an error of the operating system as one with a remedy."""
    try:
        yield
    except OSError as error:
        raise refused(error) from error


@contextmanager
def _heard(verbose: bool, listener: Listener) -> Iterator[None]:
    """Print what is said while the body runs, or pass it to ``listener``."""
    if verbose:
        yield
        return
    with heard_by(listener):
        yield


def _log_build(level: int, text: str) -> None:
    """Log a line of a build; a warning once in a process, since each build after an edit repeats it."""
    told = loads.state().told
    if level < logging.WARNING or text not in told:
        _LOGGER.log(level, text)
        told.add(text)
