"""What test_compiled.py runs with the official torch: which code torch.compile compiles again."""

import functools
import gc
import importlib
import json
import sys

import torch
from graft.session import compiled

compiled.watch()  # before Dynamo is imported
WATCHED_EARLY = sorted(torch._graft_compiled.watched)

import torch._dynamo  # noqa: E402
from torch._dynamo.backends.debugging import aot_eager  # noqa: E402

compiled.watch()
sys.modules.pop("graft.session.compiled")
compiled = importlib.import_module("graft.session.compiled")  # as after a reload
UPSTREAMS = torch._dynamo.output_graph.OutputGraph.call_user_compiler
compiled.watch()
IS_HOOKED_ONCE = torch._dynamo.output_graph.OutputGraph.call_user_compiler is UPSTREAMS

library = torch.library.Library("clips", "DEF")
for name in ("soft", "hard", "inner", "outer", "top"):
    library.define(f"{name}(Tensor x) -> Tensor")
for name in ("soft", "hard"):
    library.impl(name, lambda x: x.clone(), "CompositeExplicitAutograd")
    library.impl(name, lambda x: torch.empty_like(x), "Meta")
# Composed of others, by an operator that is composed of others.
library.impl("inner", lambda x: torch.ops.clips.hard(x) + 1, "CompositeImplicitAutograd")
library.impl("outer", lambda x: torch.ops.clips.inner(x) + 1, "CompositeImplicitAutograd")
library.impl("top", lambda x: torch.ops.clips.outer(x) + 1, "CompositeImplicitAutograd")
clips = torch.ops.clips

count = 0


def eager(graph, inputs):
    global count
    count += 1
    return graph.forward


def traced(graph, inputs):
    global count
    count += 1
    return aot_eager(graph, inputs)


def compilations(function, *arguments):
    """Return how often a backend is called for a call."""
    before = count
    function(*arguments)
    return count - before


x = torch.ones(3)


def direct():
    """Functions, methods and operators in Dynamo's own graph."""
    function = torch.compile(lambda x: torch.selu(x), backend=eager)
    method = torch.compile(lambda x: x.erfc() + 1, backend=eager)
    packet = torch.compile(lambda x: clips.soft(x), backend=eager)
    overload = torch.compile(lambda x: clips.hard.default(x), backend=eager)
    all_ = function, method, packet, overload
    results = [[compilations(each, x) for each in all_]]
    for name in ("aten::selu", "aten::erfc", "clips::soft", "clips::hard.out"):
        results.append([compiled.reset({name}), *(compilations(each, x) for each in all_)])
    results.append([compiled.reset({"aten::unused"}), *(compilations(each, x) for each in all_)])
    return results


def composed():
    """Operators that only the backend meets, also those that other operators are composed of."""
    function = torch.compile(lambda x: clips.top(x), backend=traced)
    results = [compilations(function, x)]
    for name in ("clips::top", "clips::outer", "clips::inner", "clips::hard", "clips::soft"):
        compiled.reset({name})
        results.append(compilations(function, x))
    return results


def many():
    """Twelve times; another model stays compiled."""
    mine = torch.compile(lambda x: clips.soft(x) + 1, backend=eager, fullgraph=True)
    other = torch.compile(lambda x: torch.erf(x) + 1, backend=eager, fullgraph=True)
    mine(x), other(x)
    before = count
    for _ in range(12):
        compiled.reset({"clips::soft"})
        mine(x), other(x)
    return count - before


class Mine(torch.nn.Module):
    def forward(self, x):
        return clips.soft(x)


class Other(torch.nn.Module):
    def forward(self, x):
        return torch.erf(x)


def modules():
    mine, other = Mine(), Other()
    mine.compile(backend=eager)
    other.compile(backend=eager)
    wrapped = torch.compile(torch.nn.Sequential(Other(), Mine()), backend=eager)
    all_ = mine, other, wrapped
    results = [[compilations(each, x) for each in all_]]
    compiled.reset({"clips::soft"})
    return [*results, [compilations(each, x) for each in all_]]


def broken():
    """After a graph break, a function goes on in another; both have their own graphs."""

    @torch.compile(backend=eager)
    def function(x):
        y = torch.erf(x)
        torch._dynamo.graph_break()
        return clips.soft(y)

    def helper(x):
        def inner(y):
            return clips.hard(y)

        return inner(x)

    nested = torch.compile(lambda x: helper(x) + 1, backend=eager)
    results = [compilations(function, x), compilations(nested, x)]
    for name in ("clips::soft", "aten::erf", "clips::hard"):
        compiled.reset({name})
        results += [compilations(function, x), compilations(nested, x)]
    return results


def higher_order():
    """In a graph within the graph."""

    @torch.compile(backend=eager)
    def function(x):
        return torch.cond(x.sum() > 0, lambda x: clips.soft(x), lambda x: x + 1, (x,))

    results = [compilations(function, x)]
    compiled.reset({"clips::soft"})
    return [*results, compilations(function, x)]


def missed():
    """Code that was compiled, or skipped, when an operator did not exist."""

    @torch.compile(backend=eager)
    def asks(x):
        return x.selu_clip() if hasattr(x, "selu_clip") else x + 1

    @torch.compile(backend=eager)
    def calls(x):
        try:
            return clips.late(x)
        except AttributeError:
            return x - 1

    @torch.compile(backend=eager)
    def other(x):
        return x + 3

    results = [asks(x)[0].item(), calls(x)[0].item(), compilations(other, x)]
    library.define("late(Tensor x) -> Tensor")
    library.impl("late", lambda x: x + 40, "CompositeExplicitAutograd")
    library.impl("late", lambda x: torch.empty_like(x), "Meta")
    torch.Tensor.selu_clip = lambda self: self + 30
    compiled.reset({"clips::late", "aten::selu_clip"})
    return [*results, asks(x)[0].item(), calls(x)[0].item(), compilations(other, x)]


def dead():
    """Code that nobody has any more is not kept."""
    exec("def made(x): return clips.soft(x) + 2", globals())

    def kept():
        return [code() for code, _, _ in torch._graft_compiled.code.values() if not code() or code().co_name == "made"]

    compilations(torch.compile(globals()["made"], backend=eager), x)
    results = [len(kept())]
    del globals()["made"]
    torch._dynamo.reset()
    for each in gc.get_objects():  # some of Dynamo's own caches hold the code of all frames
        if type(each) is functools._lru_cache_wrapper and each.__module__.startswith("torch._dynamo"):
            each.cache_clear()
    gc.collect()
    return [*results, len(kept())]


def on_disk():
    """With Inductor, whose graph is loaded from the disk, and not traced, the second time."""

    for name in ("first", "second"):
        library.define(f"{name}(Tensor x) -> Tensor")
    library.impl("first", lambda x: x.sin(), "CompositeImplicitAutograd")
    library.impl("second", lambda x: clips.first(x) + 1, "CompositeImplicitAutograd")

    def function(x):
        return clips.second(x).sum()

    grad = torch.ones(3, requires_grad=True)
    results = []
    for _ in range(2):
        torch._dynamo.reset()
        torch._graft_compiled.code.clear()
        torch.compile(function)(grad).backward()
        used = set().union(
            *(used for code, used, _ in torch._graft_compiled.code.values() if code() is function.__code__)
        )
        results.append(sorted(name for name in used if name.startswith("clips::")))
    return [*results, torch._dynamo.utils.counters["aot_autograd"]["autograd_cache_hit"]]


if __name__ == "__main__":
    print(
        json.dumps(
            {name: globals()[name]() for name in sys.argv[1:]} | {"early": WATCHED_EARLY, "once": IS_HOOKED_ONCE}
        )
    )
