"""Make operators that a library has bound in ``torch._C`` those of the running torch: its public names, its lists of
operators, and the texts that extend its modules.
"""

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def module(name: str, file: str) -> Any:
    """Import a module from a file without adding it to ``sys.modules``."""
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def merge(added: Any) -> None:
    """Extend ``torch._added_operators``, which several such packages share."""
    import torch

    if not importlib.util.find_spec("torch._added_operators"):
        sys.modules["torch._added_operators"] = torch._added_operators = added
        return
    from torch import _added_operators as shared

    for name, value in vars(added).items():
        if name.isupper():
            there = getattr(shared, name)
            if isinstance(there, list):
                there.extend(each for each in value if each not in there)
            else:
                there.update(value)


def bound(note: Mapping[str, Any]) -> dict[tuple[str, str], Any]:
    """Return what the classes and modules of ``torch._C`` bind."""
    import torch

    owners = {name: getattr(torch._C, name) for name in note["owners"]}
    return {(owner, name): getattr(value, name) for owner, value in owners.items() for name in list(vars(value))}


def publish(note: Mapping[str, Any], added: Any, old: Mapping[tuple[str, str], Any]) -> dict[tuple[str, str], Any]:
    """Give the new functions and named tuples their public names. Return what is bound now, where ``old`` was."""
    import torch

    _publish_functions(added, torch)
    _publish_return_types(torch)
    new = bound(note)
    _follow({old[key]: new[key] for key in old if key in new and old[key] is not new[key]})
    return new


def _publish_functions(added: Any, torch: Any) -> None:
    """Add the new functions to ``torch``, as torch/__init__.py does. Texts of other modules add theirs."""
    for path in added.FUNCTIONS:
        package, _, name = path.rpartition(".")
        if package == "torch" and not hasattr(torch, name):
            function = getattr(torch._C._VariableFunctions, name)
            function.__module__ = "torch"
            setattr(torch, name, function)
            if not name.startswith("_"):
                torch.__all__.append(name)


def _publish_return_types(torch: Any) -> None:
    """Add the new named tuples to ``torch.return_types`` and register them with pytree, as that module does."""
    module = torch.return_types
    for name in dir(torch._C._return_types):
        if not name.startswith("__") and not hasattr(module, name):
            kind = getattr(torch._C._return_types, name)
            setattr(module, name, kind)
            if not name.startswith("_"):
                module.__all__.append(name)
                module.all_return_types.append(kind)
            module.pytree_register_structseq(kind)


def _follow(replaced: Mapping[Any, Any]) -> None:
    """A name with a new overload has a new binding; replace the old one in torch's modules."""
    if not replaced:
        return
    import torch

    for old, new in replaced.items():
        if getattr(old, "__doc__", None) and not new.__doc__:
            torch._C._add_docstr(new, old.__doc__)
        if hasattr(old, "__module__") and hasattr(new, "__self__"):
            new.__module__ = old.__module__
    by_id = {id(old): (old, new) for old, new in replaced.items()}
    for name, module in list(sys.modules.items()):
        if name == "torch" or name.startswith("torch."):
            for key, value in list(vars(module).items()):
                if id(value) in by_id:
                    setattr(module, key, by_id[id(value)][1])


def tell_torchscript(bound: Mapping[tuple[str, str], Any]) -> None:
    """TorchScript looks up functions by identity."""
    from torch.jit._builtins import _register_builtin

    for (owner, name), function in bound.items():
        if owner != "TensorBase":
            _register_builtin(function, f"aten::{name}")


def refresh_packets(operators: Iterable[str]) -> None:
    """A packet created earlier lacks the new overload."""
    import torch

    for qualified in operators:
        namespace, _, name = qualified.partition("::")
        packet = vars(getattr(torch.ops, namespace)).get(name.partition(".")[0])
        if packet is not None:
            packet._op, packet._overload_names = torch._C._jit_get_operation(qualified.partition(".")[0])


def _is_there(name: str) -> bool:
    """Return whether this torch has a new module, as a grafted one has `torch._graft`, which reads a file beside it."""
    import torch

    return os.path.isfile(os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), name.removeprefix("new/")))


class Behind:
    """Runs texts that extend modules of torch: immediately if the module is loaded, else when it is imported.

    It also finds modules that torch does not have.
    """

    def __init__(self, note: Mapping[str, Any], file_of: Callable[[str], str]) -> None:
        self._behind = {module: file_of(name) for module, name in note["behind"].items()}
        self._new = {module: file_of(name) for module, name in note["new"].items() if not _is_there(name)}
        self._stars = note["stars"]
        self._looking: set[str] = set()
        self._found: set[str] = set()

    def run_loaded(self) -> None:
        """Run the texts of loaded modules: those of a package after those of its modules, as in a grafted torch."""
        # Other threads may import modules meanwhile.
        loaded = [name for name in list(sys.modules) if name in self._behind and name not in self._found]
        for name in sorted(loaded, key=lambda name: -name.count(".")):
            self.run(importlib.import_module(name))  # waits until it is whole

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name in self._new:
            file = self._new[name]
            places = [os.path.dirname(file)] if file.endswith("__init__.py") else None
            return importlib.util.spec_from_file_location(name, file, submodule_search_locations=places)
        if name not in self._behind or name in self._looking:
            return None
        self._looking.add(name)
        try:
            specs = (finder.find_spec(name, path, target) for finder in sys.meta_path if finder is not self)
            spec = next((spec for spec in specs if spec), None)
        finally:
            self._looking.discard(name)
        if spec and spec.loader:
            self._found.add(name)
            upstream = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                upstream(module)
                self.run(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def source(self, path: str) -> Any:
        """Return what to compile of a text."""
        with open(path, encoding="utf-8") as file:
            return file.read()

    def run(self, module: Any) -> None:
        """Run the text behind a module."""
        path = self._behind[module.__name__]
        code = compile(self.source(path), path, "exec", dont_inherit=True)
        before = dict(vars(module))
        exec(code, vars(module))
        after = vars(module)
        _follow({before[key]: after[key] for key in before if callable(before[key]) and before[key] is not after[key]})
        public = getattr(module, "__all__", None) or [name for name in list(after) if not name.startswith("_")]
        new = [name for name in public if name not in before and name in after]
        for other in self._stars.get(module.__name__, ()):
            if other in sys.modules:
                vars(sys.modules[other]).update({name: after[name] for name in new})
