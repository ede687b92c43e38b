"""``python child.py REQUEST OUT``: import the modules of a request, and write the operators that they register as JSON.

The user's Python runs this file. It has torch, but may lack Graft's requirements.
"""

from __future__ import annotations

import builtins
import ctypes
import importlib
import importlib.metadata
import importlib.util
import json
import os
import sys
import traceback
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

# Import torch without the operators that `make develop` added.
sys.path[:] = [path for path in sys.path if "/torch.graft/" not in f"{path}/"]

import torch  # noqa: E402

# The dispatch keys to report: for kernels that compute, and for the kernels around them.
_KERNELS = ("CompositeImplicitAutograd", "CompositeExplicitAutograd", "CPU", "CUDA", "MPS", "XPU", "PrivateUse1")
_AROUND = ("Meta", "Autograd", "AutogradCPU", "AutogradCUDA", "AutocastCPU", "AutocastCUDA", "FuncTorchBatched")


class Probe:
    """A library that looks up the C++ signatures of operators (``templates/probe.cpp``)."""

    def __init__(self, path: str) -> None:
        self._describe = ctypes.CDLL(path).graft_describe
        self._describe.restype = ctypes.c_char_p

    def describe(self, name: str, overload: str) -> dict[str, str]:
        """Return the schema, alias analysis, and signatures without and with ``SymInt``; empty where unknown."""
        lines = self._describe(name.encode(), overload.encode()).decode().split("\n")
        return dict(zip(("schema", "alias", "signature", "symint_signature"), lines))  # noqa: B905


def described(full: str, probe: Probe) -> dict[str, Any] | None:
    """Return the dispatcher's facts about an operator; None if it has kernels but no schema."""
    name, _, overload = full.partition(".")
    facts: dict[str, Any] = {**probe.describe(name, overload)}
    if not facts["schema"]:
        return None
    keys = [key for key in (*_KERNELS, *_AROUND) if torch._C._dispatch_has_kernel_for_dispatch_key(full, key)]
    python: set[str] = getattr(torch.library, "_impls", set())  # ns/op.overload/key
    in_python = [key for key in keys if f"{full.replace('::', '/')}/{key}" in python]
    namespace, op = name.split("::")
    packet = getattr(getattr(torch.ops, namespace), op)
    overloads = packet.overloads()  # torch.ops calls the first that fits
    position = overloads.index(overload or "default") if (overload or "default") in overloads else len(overloads)
    return {"name": name, "overload": overload, "keys": keys, "in_python": in_python, "position": position, **facts}


def distribution_of(module: str) -> list[str] | None:
    """Return the name and version of the distribution that provides a module; None if there is none."""
    names = importlib.metadata.packages_distributions().get(module.partition(".")[0], [])
    return [names[0], importlib.metadata.version(names[0])] if names else None


class Imports:
    """Records the operators that imports of other distributions register, so that they do not count as the extension's.

    Args:
        modules: the extension's modules.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self.foreign: set[str] = set()
        self._known = importlib.metadata.packages_distributions()
        self._own = {name for module in modules for name in self._distributions(module)}

    def _distributions(self, module: str) -> list[str]:
        return self._known.get(module.partition(".")[0], [])

    def watched(self, upstreams: Any) -> Any:
        """Wrap an import function, whose first argument is the module's name, to record such operators."""

        def imports(name: str, *given: Any, **named: Any) -> Any:
            distributions = {*self._distributions(name)}
            if name in sys.modules or not distributions or distributions & self._own:
                return upstreams(name, *given, **named)
            before = {*torch._C._dispatch_get_all_op_names()}
            try:
                return upstreams(name, *given, **named)
            finally:
                self.foreign |= {*torch._C._dispatch_get_all_op_names()} - before

        return imports

    def late(self, extensions: Sequence[str]) -> list[str]:
        """Import the extensions that are not imported yet. Return those that can be imported; others are for
        torch.ops.load_library, or for another machine.
        """
        late = [name for name in extensions if name not in sys.modules and can_be_imported(name)]
        self.run(late)
        return late

    def run(self, modules: Sequence[str]) -> None:
        """Import modules, and record the operators of other distributions."""
        by_statement = patch("builtins.__import__", self.watched(builtins.__import__))
        with by_statement, patch("importlib.import_module", self.watched(importlib.import_module)):
            for module in modules:
                importlib.import_module(module)


def can_be_imported(module: str) -> bool:
    """Return whether a module can be imported. A forked process tries it, since the import may end the process."""
    child = os.fork()
    if child == 0:
        try:
            importlib.import_module(module)
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] == 0


def causes(error: BaseException | None) -> list[BaseException]:
    """Return an error, followed by the errors that caused it."""
    return [error, *causes(error.__cause__ or error.__context__)] if error else []


def libraries_in(site: Path, modules: Sequence[str]) -> list[str]:
    """Return the shared libraries that the modules opened, as paths relative to ``site``, without torch's."""
    tops = tuple(f"{module.partition('.')[0]}." for module in modules)
    files = [getattr(each, "__file__", None) for name, each in list(sys.modules.items()) if f"{name}.".startswith(tops)]
    files += sorted(torch.ops.loaded_libraries)
    found = [os.path.relpath(file, site) for file in files if file and ".so" in Path(file).name]
    return sorted({file for file in found if not file.startswith(("..", "torch/"))})


def beside(name: str) -> Any:
    """Import a module from the folder of this file. Graft may not be installed for this Python."""
    package = "graft_adopt"
    if package not in sys.modules:
        here = Path(__file__).parent
        spec = importlib.util.spec_from_file_location(
            package, here / "__init__.py", submodule_search_locations=[str(here)]
        )
        assert spec is not None
        sys.modules[package] = importlib.util.module_from_spec(spec)
    return importlib.import_module(f"{package}.{name}")


def register_functions(
    modules: Sequence[str], before: Sequence[str], choices: Mapping[str, Any], existing: Collection[str], python: str
) -> dict[str, Any]:
    """Register pybind11 functions as the generated module will. Return its text, and notes on the functions.

    Builds add the files of the native folder's folder ``python`` to torch, so fakes there are found in torch here, too.
    """
    pybind, found = beside("pybind"), beside("pybind_found")
    package = modules[0]
    names = dict.fromkeys(name for module in modules for name in found.modules_of(module.partition(".")[0], before))
    told = pybind.registered(package, found.found_in(names), pybind.PybindChoices(**choices), existing)
    mistakes = [*told.mistakes]
    torch.__path__.append(python)
    try:
        exec(compile(told.text, "adopted", "exec"), {"__name__": "adopted"})
    except ModuleNotFoundError as error:
        where = f"{sys.executable} must find it, or it is a file in {python}, such as torch.my_fakes for my_fakes.py"
        mistakes.append(f"fakes: {error}: {where}")
    except Exception as error:
        mistakes.append(traceback.format_exception_only(type(error), error)[-1].strip())
    left_out = [*told.left_out, *((name, "it is not imported; name it, too") for name in found.not_imported(package))]
    needs = {f"{told.namespace}::{each.name}": [each.schema, *each.needs] for each in told.operators if each.needs}
    return {"text": told.text, "needs": needs, "left_out": left_out, "mistakes": mistakes, "notes": told.notes}


def read(request: Mapping[str, Any]) -> dict[str, Any]:
    """Import the modules. Return the operators that they register, or the error."""
    modules: list[str] = request["modules"]
    before, imported = {*torch._C._dispatch_get_all_op_names()}, sorted(sys.modules)
    imports = Imports(modules)
    try:
        imports.run(modules)
    except BaseException as error:
        known = importlib.metadata.packages_distributions().items()
        named = [top for top, names in known if modules[0].replace("-", "_") in (n.replace("-", "_") for n in names)]
        last = traceback.format_exception_only(type(error), error)[-1].strip()
        return {
            "error": last,
            "meant": [top for top in named if top != modules[0]],
            "missing": error.name if isinstance(error, ModuleNotFoundError) else None,
            "is_linked_otherwise": any("undefined symbol" in str(each) for each in causes(error)),
        }
    late = imports.late(request["extensions"])
    modules = [*modules, *late]
    registered = {*torch._C._dispatch_get_all_op_names()} - before
    functions = register_functions(modules, imported, request["choices"], registered, request["python"])
    new = sorted({*torch._C._dispatch_get_all_op_names()} - before - imports.foreign)
    library = Probe(request["probe"])
    found = list(filter(None, (described(full, library) for full in new)))
    for each in found:
        has_gradient = any(key.startswith("Autograd") for key in each["keys"])
        if has_gradient and beside("patterns").is_named(each["name"].rpartition("::")[2], request["own"]):
            each["formula"] = beside("formulas").formula_of(each["name"], each["overload"])
    return {
        "torch": torch.__version__,
        "late": late,
        "distributions": dict.fromkeys(modules) | {module: distribution_of(module) for module in modules},
        "operators": found,
        "functions": functions,
        "taken": sorted({*dir(torch), *dir(torch.Tensor)}),
        "libraries": libraries_in(Path(torch.__file__).parent.parent, modules),
    }


if __name__ == "__main__":
    asked, out = map(Path, sys.argv[1:])
    sys.path.pop(0)  # the folder of this file
    out.write_text(json.dumps(read(json.loads(asked.read_text(encoding="utf-8")))), encoding="utf-8")
