"""Graft: build native ATen operators into an official PyTorch wheel, or into the running process:

>>> graft.load("~/my_ops")
>>> graft.load_inline("twice(Tensor self) -> Tensor", cpp="Tensor twice(const Tensor& self) { return self.mul(2); }")

The packages are the stages of a build, in the order in which data flows through them. Each imports only from those
above it, which `make lint` checks::

    core       errors, progress, files, processes, pip, virtual environments: what all of them use
    inputs     the pin and its patches, native folders, the compiler: read once, into a snapshot whose hash is the stamp
    base       the PyTorch that is built on: a wheel, or the torch that is installed; its symbols and its torchgen
    codegen    what torchgen makes of the merged YAML: sources in units, headers, a description of the operators
    check      errors in native folders, found before a compiler runs
    compile    units and kernels to objects, objects to libraries, with ninja
    compose    each file of the delivery that differs from the base's, from its layers, in one pass
    deliver    a wheel of torch, a tree beside the torch that is installed, or a thin wheel
    new        the skeleton of an operator
    fork       the same native folder in PyTorch's source tree: as commits, and with PyTorch's own build
    checkout   what the working tree of a checkout of PyTorch changes, as a native folder
    session    operators in the running process, from a folder or from texts
    adopt      the operators of an extension that exists, as native operators
    pin        the pin of another release
    project    a folder with pyproject.toml and operators, as `backend` builds it for pip (PEP 517, PEP 660)

``stages`` runs them up to the linked libraries, ``deliveries`` is the pipeline around that, with a class for each
delivery, and ``verbs`` has what the command does. ``options`` has what a user can ask for, ``cli`` reads the command
line, and ``validation`` looks at what was given before anything is done.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .core.errors import BuildError as BuildError
    from .core.errors import GraftError as GraftError
    from .core.errors import MissingError as MissingError
    from .session.api import build as build
    from .session.api import load as load
    from .session.api import load_inline as load_inline
    from .session.api import loaded as loaded
    from .session.api import swap as swap
    from .session.api import unload as unload
    from .session.cells import load_cell as load_cell
    from .session.notebook import load_ipython_extension as load_ipython_extension
    from .session.notebook import unload_ipython_extension as unload_ipython_extension

_PLACES = {
    **dict.fromkeys(("BuildError", "GraftError", "MissingError"), "core.errors"),
    **dict.fromkeys(("build", "load", "load_inline", "loaded", "swap", "unload"), "session.api"),
    "load_cell": "session.cells",
    **dict.fromkeys(("load_ipython_extension", "unload_ipython_extension"), "session.notebook"),
}

__all__ = sorted(name for name in _PLACES if not name.endswith("_extension"))


def __getattr__(name: str) -> Any:
    """Import a public name when it is first used: commands need none, and `import graft` is to be quick."""
    import importlib

    if name not in _PLACES:
        raise AttributeError(f"module 'graft' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_PLACES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
