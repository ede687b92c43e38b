"""``python -m torch._graft``: show what this torch is, and which operators were added to it, or replaced."""

import contextlib
import ctypes
import hashlib
import json
import os
import re
import sys
import threading
import warnings

import torch

# The build writes its description next to this file. A source build writes none.
_NOTE = os.path.join(os.path.dirname(__file__), "_graft.json")

_DELIVERIES = {
    "wheel": "a complete wheel of torch",
    "develop": "added to the installed torch (make develop)",
    "thin wheel": "a thin wheel, loaded by the installed torch",
    "source": "a build of PyTorch's sources",
    "load": "loaded into this process (graft.load)",
}


def notes():
    """Return what was added to this torch, each as a dictionary; thin wheels come last."""
    own = []
    if os.path.isfile(_NOTE):
        with open(_NOTE, encoding="utf-8") as file:
            own = [json.load(file)]
    elif os.path.dirname(__file__) == os.path.dirname(torch.__file__):  # not a file of a thin wheel
        own = [{"delivery": "source", "base": torch.__version__, "hash": "", "folders": {}}]
    if own:
        from torch import _added_operators

        thin = {name for note in getattr(torch, "_thin_wheels", {}).values() for name in note["operators"]}
        own[0]["operators"] = [name for name in _added_operators.OPERATORS if name not in thin]
    return [*own, *getattr(torch, "_thin_wheels", {}).values()]


# How often stock() is used at this moment, in all threads.
_uses = 0
_lock = threading.Lock()
_switched = contextlib.ExitStack()


@contextlib.contextmanager
def stock():
    """While the body runs, use PyTorch's own kernels and derivative formulas instead of those that replace them.

    It may be nested, and used in several threads: all threads have PyTorch's own until the last use ends. No other
    thread may run operators at the moment when the first use begins, or when the last one ends. What
    ``torch.compile`` has compiled stays as it is.
    """
    global _uses
    with _lock:
        if not _uses:
            _switched.enter_context(_stock_in_all_threads())
        _uses += 1
    try:
        yield
    finally:
        with _lock:
            _uses -= 1
            if not _uses:
                _switched.close()


@contextlib.contextmanager
def _stock_in_all_threads():
    from torch._functorch import config as autograd
    from torch._inductor import config as inductor

    # The caches of compiled graphs do not know which kernels there were. ``config.patch`` is for one thread.
    caches = [autograd._config["enable_autograd_cache"], inductor._config["fx_graph_cache"]]
    before = [cache.env_value_force for cache in caches]
    try:
        for cache in caches:
            cache.env_value_force = False
        _replace(_STOCK)
        yield
    finally:
        _replace(_OWN)
        for cache, value in zip(caches, before, strict=True):
            cache.env_value_force = value


def register_again():
    """Let the kernels that replace PyTorch's come before those that Python has registered since."""
    _replace(_STOCK)
    _replace(_OWN)


# GraftKernels in scripts/graft/compile/templates/graft_libraries.h
_STOCK, _OWN, _FAILING = 0, 1, 2


# Where kernels of torch._native, and those that replace PyTorch's, are registered, as the dispatcher says.
_NATIVE, _OWN_KERNELS = os.path.join("torch", "_native", "registry.py"), re.compile(r"graft_replaced\.h|\bloads\.cpp")


def _replace(kernels):
    """Choose the kernels of all that is replaced."""
    above = [override for override, found in _overrides().items() if _NATIVE in found[0]]
    for note in notes():
        if note.get("replaced"):
            for path in _libraries(note):
                ctypes.PyDLL(path).graft_replace(kernels)
    # They call the kernel that was there when they were registered, and it no longer exists.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for override in above:
            native = sys.modules["torch._native.registry"]
            graph, state = native._graphs[override], native._filter_state
            native._register_overrides_from_graph(*override, graph, filter_state=state)
    # Python remembers which kernels there are, and the shapes of their results.
    for op in torch._ops.get_cached_ops():
        op._dispatch_cache.clear()
    if fake_tensor := sys.modules.get("torch._subclasses.fake_tensor"):
        fake_tensor.FakeTensorMode.cache_clear()


def _overrides():
    """Return where the kernels are registered that ``torch._native`` overrides, by name and dispatch key. The first
    runs.
    """
    found = {}
    for name, key in getattr(sys.modules.get("torch._native.registry"), "_aten_override_libs", ()):
        lines = torch._C._dispatch_dump(f"aten::{name}").splitlines()
        found[name, key] = [line for line in lines if re.match(rf"{key}( \(inactive\))?: ", line)]
    return found


def _libraries(note):
    """Return the loaded libraries with the operators of a note."""
    if "libraries" in note:
        return note["libraries"]
    lib = os.path.join(os.path.dirname(__file__), "lib")
    paths = [os.path.join(lib, name) for name in ("libtorch.so", "libtorch_operators_cuda.so")]
    if "extension" in note:
        names = f"lib{note['name']}.so", f"lib{note['name']}_cuda.so"
        paths = [os.path.join(note["folder"], name) for name in names]
    return [path for path in paths if os.path.isfile(path)]


# Files that are none of a native folder's: those of tools, as in scripts/graft/inputs/settings.py.
_OF_TOOLS = re.compile(
    r"\..*|#.*#|.*~|.*\.(orig|rej|bak|swp)|__pycache__|.*\.(egg|dist)-info|compile_commands\.json", re.S
)


def changed(folder, files):
    """Return the files of a native folder that changed since it was built, as sorted relative paths."""
    found, read = {}, {name.partition("/")[0] for name in files}
    for parent, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if not _OF_TOOLS.fullmatch(name)]
        folders[:] = [name for name in folders if parent != folder or name in read]
        for name in names:
            path = os.path.join(parent, name)
            if os.path.isfile(path) and not _OF_TOOLS.fullmatch(name):  # not a link that leads nowhere
                with open(path, "rb") as file:
                    found[os.path.relpath(path, folder)] = hashlib.sha256(file.read()).hexdigest()
    return sorted(path for path in {*found, *files} if found.get(path) != files.get(path))


def _lines(note):
    yield "delivery", _DELIVERIES[note["delivery"]] + (f", {note['name']}" if "name" in note else "")
    yield "base", f"torch {note['base']}"
    if note["hash"]:
        yield "hash", note["hash"]
    names = dict.fromkeys(name.partition("::")[2].partition(".")[0] for name in note["operators"])
    yield "operators", ", ".join(name for name in names if not name.startswith("_"))
    if note.get("laid_over"):
        yield "laid over", ", ".join(note["laid_over"])
    if note.get("extended"):
        yield "extended", ", ".join(note["extended"])
    if note.get("replaced"):
        yield "replaced", ", ".join(f"{name} ({', '.join(what)})" for name, what in note["replaced"].items())
        yield from _overridden(note["replaced"])
    for folder, files in note["folders"].items():
        names = changed(folder, files) if os.path.isdir(folder) else None
        state = "deleted" if names is None else f"changed since: {', '.join(names)}" if names else "unchanged since"
        yield "folder", f"{folder}: {state}"


def _overridden(replaced):
    """Yield who runs of what is replaced here and overridden by ``torch._native``."""
    for (name, key), kernels in _overrides().items():
        # The kernel of a structured operator is that of its out variant.
        roots = {each.partition(".")[0] for each, what in replaced.items() if key in what}
        if name.partition(".")[0].rstrip("_") in roots and any(map(_OWN_KERNELS.search, kernels)):
            runs = "torch._native's, else this one" if _NATIVE in kernels[0] else "this one, not torch._native's"
            yield "runs", f"{name} ({key}): {runs}"


def main():
    print(f"torch {torch.__version__}, {os.path.dirname(torch.__file__)}")
    for note in notes():
        print()
        for title, text in _lines(note):
            print(f"{title:<11}{text}")


if __name__ == "__main__":
    main()
