"""What test_caches.py runs with the official torch: what torch remembers of operators, before and after."""

import importlib
import inspect
import json
import sys
import types

import torch
from graft.session import caches


def fragment():
    """Return what registers operators as C++ does, unknown to torch.library."""
    return torch._C._dispatch_library("FRAGMENT", "aten", "", __file__, 0)


library = fragment()


def define(schema, kernel, tags=()):
    library.define(schema, "", tags)
    library.impl(schema.partition("(")[0], "CompositeExplicitAutograd", kernel, False)


def soft_clip(self, limit=1):
    return (self / limit).tanh() * limit


define("soft_clip(Tensor self, float limit=1) -> Tensor", soft_clip)
define("soft_clip.other(Tensor self, Tensor limit) -> Tensor", soft_clip)
aten = torch.ops.aten


def walk():
    """Do what meets all operators; return how many overloads there are."""
    overloads = 0
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        if isinstance(packet, torch._ops.OpOverloadPacket):
            overloads += len([str(getattr(packet, overload)._schema) for overload in packet.overloads()])
    for name in torch.ops.aten:
        getattr(torch.ops.aten, name)
    torch._decomp.core_aten_decompositions().items()
    torch.overrides.get_testing_overrides()
    inspect.getmembers(torch)
    importlib.import_module("torch._export.utils")._collect_all_valid_cia_ops_for_aten_namespace()
    return overloads


def packets():
    """Another schema, a new overload, one overload less, and none at all."""
    global library
    packet, default = aten.soft_clip, aten.soft_clip.default
    tables = {packet: "packet"}
    from torch._inductor import lowering

    lowering.lowerings[packet] = "packet"
    assert aten.soft_clip.other
    results = {"before": [sorted(packet.overloads()), sorted(packet)], "walked": walk()}
    library.reset()
    library = fragment()
    define(
        "soft_clip(Tensor self, float limit=2, float scale=1) -> Tensor", lambda self, limit=2, scale=1: self * scale
    )
    define("soft_clip.third(Tensor self, int limit) -> Tensor", lambda self, limit: self)
    caches.update_packets({"aten::soft_clip", "aten::soft_clip.third"}, {"aten::soft_clip.other"})
    new = aten.soft_clip.default
    results["packet"] = aten.soft_clip is packet
    results["in_tables"] = [tables.get(packet), lowering.lowerings.get(packet)]
    results["overload"] = [new is not default, str(new._schema), sorted(packet.overloads()), sorted({*packet})]
    results["called"] = [packet(torch.ones(1), 1.0, 3.0).tolist(), new(torch.ones(1), scale=5.0).tolist()]
    results["has_other"] = hasattr(packet, "other")
    results["scripted"] = torch.jit.script(uses)(torch.ones(1)).tolist()
    walk()
    library.reset()
    caches.update_packets(set(), {"aten::soft_clip", "aten::soft_clip.third"})
    results["gone"] = [hasattr(torch.ops.aten, "soft_clip"), "soft_clip" in dir(torch.ops.aten), "soft_clip" in [*aten]]
    lowering.lowerings.pop(packet)
    results["walked_after"] = walk()
    return results


def uses(x):
    return torch.ops.aten.soft_clip(x, 1.0, 7.0)


def keys():
    """The keys on disk, of both caches of graphs."""
    caches.set_key("early")
    caches.keep_key()  # nothing is there yet
    from torch._inductor import codecache
    from torch._inductor.compile_worker import subproc_pool  # has it by its name

    texts, found = ["", "one", "two", "one", ""], []
    upstreams = subproc_pool.torch_key
    for text in texts:
        caches.set_key(text)
        found.append([codecache.torch_key().hex(), subproc_pool.torch_key().hex(), codecache.FxGraphHashDetails])
    caches.set_key("")
    importlib.reload(caches).set_key("")
    plain = upstreams().hex()
    details = [graph_key(text) for text in texts]
    return {
        "plain": [plain, *(each[0] for each in found)],
        "by_name": [each[1] for each in found],
        "graphs": [each[0] for each in details],
        "autograd": [each[1] for each in details],
        "has": sorted(name for name in ("set", "clear", "prefetch") if hasattr(codecache.torch_key, name)),
    }


def graph_key(text):
    """Return the keys of a graph, of Inductor's cache and of AOTAutograd's."""
    from torch._functorch._aot_autograd import autograd_cache
    from torch._inductor import codecache

    caches.set_key(text)
    graph = torch.fx.symbolic_trace(lambda x: x + 1)
    inductor = codecache.FxGraphHashDetails(graph, [], {}, [])
    autograd = autograd_cache.AOTAutogradCacheDetails.__new__(autograd_cache.AOTAutogradCacheDetails)
    codecache.FxGraphHashDetails.__init__(autograd, graph, [], {}, [])
    return inductor.torch_version.hex(), autograd.torch_version.hex()


def facts():
    """What depends on operators, each asked before and after an operator changes."""
    import torch._dynamo.trace_rules as rules
    from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
    from torch._functorch.partitioners import pointwise_ops
    from torch._inductor import decomposition, lowering
    from torch._subclasses.fake_tensor import FakeTensorMode

    op = aten.soft_clip.default

    def asked():
        mode = FakeTensorMode()
        with mode:
            shape = list(op(torch.ones(2, 3)).shape)
        return {
            "fake": shape,
            "rule": getattr(torch, "soft_clipped", None) in rules.get_torch_obj_rule_map(),
            "decomposition": decomposition.select_decomp_table().get(op) is not None,
            "copied": op in decomposition.decompositions,
            "lowering": op in lowering.lowerings,
            "fallback": op in lowering.fallbacks,
            "pointwise": len(pointwise_ops()),
        }

    added = types.ModuleType("torch._added_operators")
    added.OPERATORS = ["aten::soft_clip", "aten::soft_clip.other", "aten::pointed"]
    before = asked()
    lowering.make_fallback(op)
    made = [op in lowering.lowerings, op in lowering.fallbacks]
    # What a load changes.
    library.impl("soft_clip", "Meta", lambda self, limit=1: torch.empty(1, 1, device="meta"), False)
    define("pointed(Tensor self) -> Tensor", lambda self: self, (torch.Tag.pointwise,))
    assert aten.pointed
    torch.soft_clipped = lambda x: x
    rules.torch_c_binding_in_graph_functions["torch.soft_clipped"] = TorchInGraphFunctionVariable
    upstreams = torch._decomp._core_aten_decompositions_post_autograd
    torch._decomp.register_decomposition(op)(soft_clip)
    torch._decomp._core_aten_decompositions_post_autograd = lambda: {**upstreams(), op: soft_clip}
    excluded = dict(decomposition.decompositions)
    stale = asked()
    sys.modules["torch._added_operators"] = torch._added_operators = added
    caches.forget({"aten::soft_clip", "aten::pointed", "aten::sum", "aten::gelu", "aten::addmv"})
    after = asked()
    other = {
        str(key)
        for key in {**decomposition.decompositions, **excluded}
        if decomposition.decompositions.get(key) is not excluded.get(key)
    }
    return {
        "before": before,
        "made": made,
        "stale": stale,
        "after": after,
        "changed_decompositions": sorted(other),
    }


def emptied():
    """Caches that are filled, and empty afterwards."""
    import torch._dynamo.trace_rules as rules
    import torch.distributed as dist
    from torch._dispatch.python import enable_python_dispatcher
    from torch._inductor import codecache, decomposition
    from torch._prims import context
    from torch._subclasses import fake_impls, fake_tensor
    from torch.distributed.tensor import DTensor, Replicate, init_device_mesh
    from torch.fx import operator_schemas
    from torch.testing._internal.distributed.fake_pg import FakeStore

    op = aten.soft_clip.default
    functions = [
        rules.get_torch_obj_rule_map,
        rules.get_tensor_method,
        torch.overrides.get_testing_overrides,
        torch.overrides.get_ignored_functions,
        torch.overrides._get_overridable_functions,
        torch.utils._device._device_constructors,
        fake_impls.get_fast_op_impls,
        decomposition.fast_random_decomps,
        codecache._default_device_constructor_targets,
        context.torch_to_refs_map,
    ]
    signatures = operator_schemas._SCHEMA_TO_SIGNATURE_CACHE
    signatures.clear()
    for each in (op, aten.sin.default):
        operator_schemas.get_signature_for_torch_op(each)
        operator_schemas._torchscript_schema_to_signature(each._schema)
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    tensor = DTensor.from_local(torch.ones(2), init_device_mesh("cpu", (2,)), [Replicate()])
    for _ in range(2):
        torch.sin(tensor)
    for function in functions:
        function()
    fake_tensor.get_schema_info(op)
    with enable_python_dispatcher():
        op(torch.ones(1))
    functions = [inspect.unwrap(each, stop=lambda each: hasattr(each, "cache_info")) for each in functions]

    def sizes():
        return {
            "functions": [each.cache_info().currsize for each in functions],
            "schema": fake_tensor.get_schema_info.cache_info().currsize,
            "signatures": sorted(name for name, _ in signatures),
            "dispatch": len(op._dispatch_cache),
        }

    before = sizes()
    hits = torch._C._get_DTensor_sharding_propagator_cache_stats()
    caches.forget({"aten::soft_clip"})
    after = sizes()
    torch.sin(tensor)
    return {
        "before": before,
        "after": after,
        "sharding": [hits, torch._C._get_DTensor_sharding_propagator_cache_stats()],
    }


def unloaded():
    """Nothing is imported for the sake of its caches."""
    before = {*sys.modules}
    caches.forget({"aten::soft_clip"})
    caches.set_key("text")
    return sorted({*sys.modules} - before)


if __name__ == "__main__":
    print(json.dumps({name: globals()[name]() for name in sys.argv[1:]}))
