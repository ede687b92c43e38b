"""Graft: build native ATen operators into an official PyTorch wheel, or into the running process:

>>> graft.load("~/my_ops")
>>> graft.load_inline("twice(Tensor self) -> Tensor", cpp="Tensor twice(const Tensor& self) { return self.mul(2); }")

The packages are the stages of a build, in the order in which data flows through them. Each imports only from those
above it, which `make lint` checks::

    core       errors, progress, files, processes, pip, virtual environments: used by all other packages
    cpp        read C++ without a compiler: statements, functions, includes; expressions with tree-sitter
    inputs     the pin and its patches, native folders, the compiler: read once, into a snapshot whose hash is the stamp
    base       the PyTorch to build on: a wheel, or the installed torch; its symbols and its torchgen
    codegen    the code that torchgen generates from the merged YAML: sources in units, headers, a description
    check      find errors in native folders before a compiler runs
    compile    units and kernels to objects, objects to libraries, with ninja
    compose    the files of a delivery that differ from the base's, each written in one pass
    deliver    a wheel of torch, a tree beside the installed torch, or a thin wheel
    new        the skeleton of an operator
    fork       add native folders to PyTorch's source tree, as commits, and build it with PyTorch's own build
    checkout   convert the changes in a checkout of PyTorch into a native folder
    session    load operators into the running process, from a folder or from strings
    adopt      convert the operators of an existing extension into native operators
    pin        write the pin of another release
    project    build a project with a pyproject.toml and operators for pip (PEP 517, PEP 660), behind `backend`

``stages`` runs a build up to the linked libraries, ``deliveries`` is the pipeline around that, with a class for each
delivery, and ``verbs`` implements the commands that build and check. ``options`` declares the options, ``cli`` reads
the command line, and ``validation`` checks a request before its verb runs.
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
    """Import a public name on first use. This keeps `import graft` fast; commands use none of these names."""
    import importlib

    if name not in _PLACES:
        raise AttributeError(f"module 'graft' has no attribute '{name}'")
    return getattr(importlib.import_module(f".{_PLACES[name]}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
