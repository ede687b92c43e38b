"""What test_changes.py runs with the official torch: texts behind torch's modules, recorded and undone.

``describe`` reads torch's own tables, by their names. With the argument ``fresh`` the process changes nothing.
"""

import gc
import importlib
import json
import re
import sys
import tempfile
import time
import types
import warnings
from pathlib import Path

import torch

MODULES = [
    "torch._decomp.decompositions",
    "torch._decomp",
    "torch._meta_registrations",
    "torch._subclasses.fake_impls",
    "torch._higher_order_ops.auto_functionalize",
    "torch._dynamo.trace_rules",
    "torch._inductor.decomposition",
    "torch._inductor.lowering",
    "torch._inductor.graph",
    "torch.distributed.tensor._ops._matrix_ops",
    "torch.export",
    "torch.nn.functional",
    "torch.nn.modules",
    "torch.overrides",
    "torch.utils._device",
    "torch.utils._pytree",
    "torch.utils.flop_counter",
    "torch._tensor",
]
for name in MODULES:
    importlib.import_module(name)

from graft.core.layout import PACKAGE  # noqa: E402
from graft.session.changes import Changes  # noqa: E402
from torch.distributed.tensor import DTensor  # noqa: E402

aten = torch.ops.aten
definitions = torch.library.Library("aten", "FRAGMENT")
definitions.define("soft_clip(Tensor self, float limit=1) -> Tensor")
definitions.impl("soft_clip", lambda self, limit=1: (self / limit).tanh() * limit, "CompositeExplicitAutograd")

FOLDER = Path(tempfile.mkdtemp())
(FOLDER / "soft_clip.py").write_text("import torch\nclass SoftClip(torch.nn.Module):\n    pass\n")

TEXTS = {
    "torch._decomp.decompositions": """
@register_decomposition(aten.soft_clip)
def soft_clip(self, limit=1):
    return (self / limit).tanh() * limit
""",
    "torch._decomp": """
decomposition_table.pop(torch.ops.aten.trace.default)
@register_decomposition(torch.ops.aten.trace.default)
def trace(self):
    return torch.sum(torch.diag(self))
""",
    "torch._meta_registrations": """
@register_meta(aten.soft_clip.default)
def meta_soft_clip(self, limit=1):
    return torch.empty_like(self)
""",
    "torch._subclasses.fake_impls": """
@register_op_impl(aten.soft_clip.default)
def _(mode, func, *args, **kwargs):
    return torch.empty_like(args[0])
""",
    "torch._inductor.decomposition": """
@register_decomposition(aten.soft_clip.default)
def soft_clip(self, limit=1):
    return self
""",
    "torch._inductor.lowering": """
@register_lowering(aten.soft_clip.default)
def soft_clip(x, limit=1):
    return x
""",
    "torch.distributed.tensor._ops._matrix_ops": """
register_op_strategy(aten.soft_clip.default)(mm_strategy)
""",
    "torch.utils.flop_counter": """
@register_flop_formula(aten.soft_clip)
def soft_clip_flop(*args, out_shape=None, **kwargs):
    return 1
""",
    "torch.utils._pytree": """
class Pair:
    pass
register_pytree_node(Pair, lambda p: ([], None), lambda c, x: Pair())
""",
    "torch.nn.modules": """
from .soft_clip import SoftClip
__all__ += ["SoftClip"]
__all__.insert(3, "Clip")
__all__.remove("Linear")
""",
    "torch.nn.functional": """
def gelu(x):
    return x
relu.__doc__ = "Rectifies."
def soft_clip(x):
    return x
""",
    "torch._tensor": """
Tensor.halved = lambda self: self / 2
Tensor.__len__ = lambda self: 7
import torch.nn.attention.varlen
import torch.nn.utils.prune
torch.library.define("clip_demo::twice", "(Tensor x) -> Tensor")
@torch.library.impl("clip_demo::twice", "CompositeExplicitAutograd")
def twice(x):
    return 2 * x
@torch.library.register_fake("clip_demo::twice")
def fake_twice(x):
    return torch.empty_like(x)
@torch.library.custom_op("clip_demo::thrice", mutates_args=())
def thrice(x: torch.Tensor) -> torch.Tensor:
    return 3 * x
@thrice.register_fake
def fake_thrice(x):
    return torch.empty_like(x)
thrice.register_autograd(lambda context, grad: 3 * grad)
""",
}
ADDED = {
    "OPERATORS": ["aten::soft_clip"],
    "OVERLOADS": [],
    "POINTWISE": ["aten::soft_clip"],
    "WRITING": [],
    "FUNCTIONS": {},
    "FACTORIES": [],
    "REPLACED": {},
    "resolve": lambda name: getattr(torch, name),
}
torch._added_operators = sys.modules["torch._added_operators"] = types.ModuleType("torch._added_operators")
vars(torch._added_operators).update(ADDED)


class Finder:
    """Finds the new module of the folder."""

    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == "torch.nn.modules.soft_clip":
            return importlib.util.spec_from_file_location(name, FOLDER / "soft_clip.py")
        return None


def run(texts):
    """Run the folder's texts, and those that Graft appends to the same modules."""
    sys.meta_path.insert(0, Finder)
    for name in MODULES:
        package = name.removeprefix("torch.").replace(".", "/")
        files = [PACKAGE / f"compose/appended/{package}{end}" for end in (".py", "/__init__.py")]
        appended = [file.read_text() for file in files if file.is_file()]
        # Meta functions of the folder are there before Graft's text, which activates them.
        place = 0 if name == "torch._meta_registrations" else len(appended)
        for text in [*appended[:place], texts.get(name, ""), *appended[place:]]:
            exec(compile(text, name, "exec", dont_inherit=True), vars(sys.modules[name]))


def named(value):
    """Return a name of a value that is the same in another process."""
    if isinstance(value, (type, types.FunctionType)):
        return f"{value.__module__}.{value.__qualname__}"
    return value if isinstance(value, str) else type(value).__name__


def describe():
    """Return torch's tables."""
    from torch._library.simple_registry import singleton

    propagator = DTensor._op_dispatcher.sharding_propagator
    tables = {
        **{f"decompositions {kind}": table for kind, table in torch._decomp.global_decomposition_table.items()},
        "inductor": torch._inductor.decomposition.decompositions,
        "lowerings": torch._inductor.lowering.lowerings,
        "fakes": torch._subclasses.fake_impls.op_implementations_dict,
        "pytree": torch.utils._pytree.SUPPORTED_NODES,
        "flops": torch.utils.flop_counter.flop_registry,
        "library": singleton._data,
        "strategies": propagator.op_strategy_funcs,
        "rules": torch._dynamo.trace_rules.torch_c_binding_in_graph_functions,
        "kernels": torch.ops.aten.soft_clip.default.py_kernels,
        "tensor": dict(vars(torch.Tensor)),
        **{name: vars(sys.modules[name]) for name in MODULES},
    }
    left_out = {"__builtins__", "__warningregistry__", "__annotations__"}
    return {
        **{
            title: {
                re.sub(" at 0x.*>", "", str(key)): named(value) for key, value in table.items() if key not in left_out
            }
            for title, table in tables.items()
        },
        "all": list(torch.nn.modules.__all__),
        "docs": [torch.nn.functional.relu.__doc__],
        "dispatcher": torch._C._dispatch_dump("aten::soft_clip"),
        "names": sorted(torch._C._dispatch_get_all_op_names()),
        "impls": sorted(torch.library._impls),
        "modules": sorted(name for name in sys.modules if name.startswith("torch.nn.modules.")),
        "finders": [getattr(each, "__name__", type(each).__name__) for each in sys.meta_path],
    }


def imported():
    """Import what the texts import: what torch's own modules change is theirs."""
    import torch.nn.attention.varlen
    import torch.nn.utils.prune  # noqa: F401


def timed():
    """Return the shortest time of five that recording nothing takes."""
    shortest = 9.0
    for _ in range(5):
        start = time.perf_counter()
        with Changes().recorded():
            pass
        shortest = min(shortest, time.perf_counter() - start)
    return shortest


def differing(first, second):
    """Return what differs, by table and key."""
    found = {}
    for title in first:
        if first[title] != second[title]:
            mine, theirs = (
                value.items() if isinstance(value, dict) else value for value in (first[title], second[title])
            )
            found[title] = [
                *(each for each in mine if each not in theirs),
                *(each for each in theirs if each not in mine),
            ]
    return found


def edited():
    """Run the texts, undo them, and run edited ones, three times."""
    warnings.simplefilter("error")
    results, changes = {}, Changes()
    with changes.recorded():
        run(TEXTS)
    results["changed"] = sorted(differing(PRISTINE, describe()))
    results["works"] = [
        torch.ones(2).halved().tolist(),
        len(torch.ones(3)),
        torch.ops.clip_demo.thrice(torch.ones(1)).tolist(),
        torch.ops.clip_demo.twice(torch.ones(1, device="meta")).device.type,
        torch.ops.aten.soft_clip(torch.ones(2, device="meta")).shape,
    ]
    twice = torch.ops.clip_demo.twice.default
    again = {name: text.replace("3 *", "4 *") for name, text in TEXTS.items()}
    for _ in range(2):
        changes.undo()
        gc.collect()  # libraries have finalizers
        with changes.recorded():
            run(again)
    results["edited"] = torch.ops.clip_demo.thrice(torch.ones(1)).tolist()
    results["impls"] = sorted(name for name in torch.library._impls if "clip" in name)
    changes.undo()
    gc.collect()
    try:
        twice(torch.ones(1))
    except RuntimeError as error:
        results["gone"] = str(error)
    results["imports"] = [torch.nn.utils.prune.__name__, torch.ops.torch_attn._varlen_attn.default.name()]
    results["undone"] = describe()
    return results


def raised():
    """Run texts of which the last raises."""
    changes = Changes()
    try:
        with changes.recorded():
            run({**TEXTS, "torch._tensor": "Tensor.halved = 1\nraise KeyError('mine')"})
    except KeyError as error:
        imported()
        return {"error": str(error), "undone": describe()}


def others():
    """Undo texts after others have changed the same places."""
    functional, names, changes = torch.nn.functional, torch.nn.modules.__all__, Changes()
    before = names[names.index("Linear") - 1]
    torch.nn.modules.Clip = torch.nn.modules.SoftClip = None
    with changes.recorded():
        run(TEXTS)
    functional.gelu = "theirs"
    names.append("Theirs")
    names.insert(0, "First")
    torch._decomp.decomposition_table[aten.soft_clip.default] = "theirs"
    torch.Tensor.halved = "theirs"
    changes.undo()
    return {
        "gelu": functional.gelu,
        "all": [*names[:1], *(each for each in names if each in ("Clip", "SoftClip", "Linear")), *names[-1:]],
        "linear": names[names.index("Linear") - 1] == before,
        "table": torch._decomp.decomposition_table[aten.soft_clip.default],
        "method": torch.Tensor.halved,
        "soft_clip": hasattr(functional, "soft_clip"),
    }


def nested():
    """A text of one folder imports a module, behind which a text of another folder runs."""
    first, second = Changes(), Changes()

    class Behind:
        @staticmethod
        def find_spec(name, path=None, target=None):
            if name != "torch.nn.utils.prune":
                return None
            spec = importlib.machinery.PathFinder.find_spec(name, path, target)
            upstreams = spec.loader.exec_module

            def exec_module(module):
                upstreams(module)
                with second.recorded():
                    module.random_unstructured = torch.nn.functional.elu = "second"

            spec.loader.exec_module = exec_module
            return spec

    sys.meta_path.insert(0, Behind)
    with first.recorded():
        torch.nn.functional.selu = "first"
        import torch.nn.utils.prune as prune

        torch.nn.functional.celu = "first"
    functional = torch.nn.functional
    states = [[named(getattr(functional, name)) for name in ("selu", "celu", "elu")]]
    first.undo()
    states.append([named(getattr(functional, name)) for name in ("selu", "celu", "elu")])
    second.undo()
    states.append([named(getattr(functional, name)) for name in ("selu", "celu", "elu")])
    return {"states": states, "prune": named(prune.random_unstructured), "module": torch.nn.utils.prune is prune}


if __name__ == "__main__":
    what = sys.argv[1]
    if what == "fresh":
        imported()
        print(json.dumps(describe()))
    else:
        PRISTINE = describe()
        print(json.dumps(globals()[what]()))
