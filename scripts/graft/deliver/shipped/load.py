"""Add the operators of this package to the torch that is being imported, as in a grafted torch.

The package has a folder for each build of torch that it was made for. PyTorch calls ``autoload`` at the end of
``import torch`` (entry points of the group ``torch.backends``). An error here never stops torch: it prints one line,
and torch works without these operators; importing the package then raises ImportError.
"""

import importlib
import importlib.util
import json
import os
import sys

_PACKAGE = __name__.rpartition(".")[0]
_FOLDER = os.path.dirname(os.path.abspath(__file__))
# What is the same for all builds.
_SHARED = os.path.join(_FOLDER, "shared")

# Why the operators were not added; empty if they were; None if nobody asked for them yet.
_reason = None


class _Refused(ValueError):
    """The reason why the operators are not added."""


def autoload():
    """Add the operators, once. On an error, print one line."""
    global _reason
    if _reason is not None:
        return
    _reason = ""
    names = []
    try:
        builds = _builds()
        names = list(builds[0]["names"])
        if os.path.isfile(os.path.join(_FOLDER, "edited.py")):  # an editable install
            from .edited import build_again

            build_again(_FOLDER, _PACKAGE)
            builds = _builds()
        _load(_chosen(builds))
    except Exception as error:
        _reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        sys.stderr.write(f"{_PACKAGE}: its operators were not added to torch: {_reason}\n")
        _explain(names)
        sys.modules.pop(_PACKAGE, None)  # so that importing it runs it again, which raises the error


def require():
    """Add the operators.

    Raises:
        ImportError: they cannot be added to this torch.
    """
    autoload()
    if _reason:
        raise ImportError(f"{_PACKAGE}: its operators were not added to torch: {_reason}")


def include():
    """Return the folders of the operators' C++ headers: ``ATen/ops/my_op.h`` declares ``at::my_op``.

    Raises:
        ImportError: as ``require``.
    """
    require()
    folders = [os.path.join(folder, "include") for folder in (_folder(), _SHARED)]
    return [folder for folder in folders if os.path.isdir(folder)]


def library():
    """Return the library that C++ which calls the operators is linked with.

    Raises:
        ImportError: as ``require``.
    """
    require()
    return os.path.join(_folder(), f"lib{_PACKAGE}.so")


def _folder():
    import torch

    return torch._thin_wheels[_PACKAGE]["folder"]


def _explain(names):
    """Make ``torch.name`` say why it is missing."""
    import torch

    upstream = getattr(torch, "__getattr__", None)

    def __getattr__(name):
        if name in names:
            raise AttributeError(f"module 'torch' has no attribute '{name}'. {_PACKAGE} has it, but {_reason}")
        if upstream is None:
            raise AttributeError(f"module 'torch' has no attribute '{name}'")
        return upstream(name)

    torch.__getattr__ = __getattr__


def _builds():
    with open(os.path.join(_FOLDER, "builds.json"), encoding="utf-8") as file:
        return json.load(file)


def _chosen(builds):
    """Return the note of the build for this torch. Functions are bound by address, so libraries must be identical."""
    import torch

    lib = os.path.join(os.path.dirname(torch.__file__), "lib")
    for build in builds:
        is_same = torch.version.git_version == build["commit"]
        if is_same and all(_library(os.path.join(lib, name)) == told for name, told in build["libraries"].items()):
            return _note(build)
    versions, version = [build["requires"] for build in builds], torch.__version__
    this, todo = version, f"install one of these (`pip install torch=={versions[-1]}`)"
    if version in versions:
        this, todo = f"another build of torch {version}", f"`pip install torch=={version} --force-reinstall`"
    raise _Refused(
        f"they were built for torch {', '.join(versions)} from pip, but this is {this}; {todo}, or install a "
        f"{_PACKAGE} for this torch"
    )


def _library(path):
    """Return the size of a library, and a hash of its start, which holds its build-id; None if there is none."""
    import hashlib

    try:
        with open(path, "rb") as file:
            return [os.fstat(file.fileno()).st_size, hashlib.sha256(file.read(4096)).hexdigest()]
    except FileNotFoundError:
        return None


def _note(build):
    folder = os.path.join(_FOLDER, build["folder"])
    with open(os.path.join(folder, "note.json"), encoding="utf-8") as file:
        return {**json.load(file), "folder": folder}


def _file(note, name):
    """Return the path of a file of a build."""
    own = os.path.join(note["folder"], name)
    return own if os.path.isfile(own) else os.path.join(_SHARED, name)


def _load(note):
    import torch

    _require_no_other(note, torch)
    added = _module("torch._added_operators", _file(note, "_added_operators.py"))
    old = _bound(note, torch)
    _module(f"{_PACKAGE}._C", _file(note, note["extension"]))
    torch._thin_wheels = {**getattr(torch, "_thin_wheels", {}), note["name"]: note}
    _merge(added)
    _publish(added, torch)
    _publish_return_types(torch)
    new = _bound(note, torch)
    _follow({old[key]: new[key] for key in old if old[key] is not new[key]})
    _tell_torchscript({key: value for key, value in new.items() if old.get(key) is not value})
    _refresh_packets(note, torch)
    behind = _Behind(note)
    sys.meta_path.insert(0, behind)
    behind.run_loaded()


def _require_no_other(note, torch):
    """Check that neither the torch, which may be grafted, nor another thin wheel has an operator of this one:
    registering it again would end Python.
    """
    if not importlib.util.find_spec("torch._added_operators"):
        return
    # Not imported: `python -m torch._graft` would warn that it is loaded already.
    graft = _module(f"{_PACKAGE}._graft", importlib.util.find_spec("torch._graft").origin)
    for other in graft.notes():
        if twice := sorted(_names(other) & _names(note)):
            thin = other.get("name")
            where, either = (thin, f"{thin} or ") if thin else (f"torch {torch.__version__}", "")
            raise _Refused(f"{twice[0]} is already in {where}; uninstall {either}{note['name']}")


def _names(note):
    """Return the operators that a note adds, and those that it replaces."""
    return {*note["operators"], *note.get("replaced", ())}


def _module(name, file):
    """Import a module from a file without adding it to ``sys.modules``."""
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _merge(added):
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


def _bound(note, torch):
    """Return what the classes and modules of ``torch._C`` bind."""
    owners = {name: getattr(torch._C, name) for name in note["owners"]}
    return {(owner, name): getattr(value, name) for owner, value in owners.items() for name in list(vars(value))}


def _publish(added, torch):
    """Add the new functions to ``torch``, as torch/__init__.py does. Texts of other modules add theirs."""
    for path in added.FUNCTIONS:
        package, _, name = path.rpartition(".")
        if package == "torch" and not hasattr(torch, name):
            function = getattr(torch._C._VariableFunctions, name)
            function.__module__ = "torch"
            setattr(torch, name, function)
            if not name.startswith("_"):
                torch.__all__.append(name)


def _publish_return_types(torch):
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


def _follow(replaced):
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


def _tell_torchscript(bound):
    """TorchScript looks up functions by identity."""
    from torch.jit._builtins import _register_builtin

    for (owner, name), function in bound.items():
        if owner != "TensorBase":
            _register_builtin(function, f"aten::{name}")


def _refresh_packets(note, torch):
    """A packet created earlier lacks the new overload."""
    for qualified in note["operators"]:
        namespace, _, name = qualified.partition("::")
        packet = vars(getattr(torch.ops, namespace)).get(name.partition(".")[0])
        if packet is not None:
            packet._op, packet._overload_names = torch._C._jit_get_operation(qualified.partition(".")[0])


def _is_there(name):
    """Return whether this torch has a new module, as a grafted one has `torch._graft`, which reads a file beside it."""
    import torch

    return os.path.isfile(os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), name.removeprefix("new/")))


class _Behind:
    """Runs texts that extend modules of torch: immediately if the module is loaded, else when it is imported.

    It also finds modules that torch does not have.
    """

    def __init__(self, note):
        self._behind = {module: _file(note, name) for module, name in note["behind"].items()}
        self._new = {module: _file(note, name) for module, name in note["new"].items() if not _is_there(name)}
        self._stars = note["stars"]
        self._looking = set()
        self._found = set()

    def run_loaded(self):
        """Run the texts of loaded modules: those of a package after those of its modules, as in a grafted torch."""
        # Other threads may import modules meanwhile.
        loaded = [name for name in list(sys.modules) if name in self._behind and name not in self._found]
        for name in sorted(loaded, key=lambda name: -name.count(".")):
            self._run(importlib.import_module(name))  # waits until it is whole

    def find_spec(self, name, path=None, target=None):
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

            def exec_module(module):
                upstream(module)
                self._run(module)

            spec.loader.exec_module = exec_module
        return spec

    def _run(self, module):
        path = self._behind[module.__name__]
        with open(path, encoding="utf-8") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        before = dict(vars(module))
        exec(code, vars(module))
        after = vars(module)
        _follow({before[key]: after[key] for key in before if callable(before[key]) and before[key] is not after[key]})
        public = getattr(module, "__all__", None) or [name for name in list(after) if not name.startswith("_")]
        new = [name for name in public if name not in before and name in after]
        for other in self._stars.get(module.__name__, ()):
            if other in sys.modules:
                vars(sys.modules[other]).update({name: after[name] for name in new})
