"""``python compare_child.py REQUEST OUT``: run adopted operators and the extension's on the inputs of a samples.py, in
each way that PyTorch has to run them, and write the verdicts as JSON. The user's Python runs this file, which needs
torch alone.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map_only, tree_unflatten

# The arguments of a call, by name in the adopted operator; and a function that makes the call.
Given = Mapping[str, Any]
Call = Callable[[Given], Any]

# The dispatch keys of gradients. An extension with such a kernel handles its writes to arguments itself.
_GRADIENTS = ("Autograd", "AutogradCPU", "CompositeImplicitAutograd")
_CHECKS = ("test_schema", "test_autograd_registration", "test_faketensor")


class Side:
    """One of the two operators that are compared.

    Args:
        full: its name with the namespace and the overload.
        names: the names of the given arguments, in its order; None for its own names.
        kept: the positions of the results that both return; None for all.
    """

    def __init__(self, full: str, names: Sequence[str] | None, kept: Sequence[int] | None) -> None:
        namespace, _, rest = full.partition("::")
        name, _, overload = rest.partition(".")
        self.full, self._called, self._kept = full, f"torch.ops.{namespace}.{name}", kept
        self.op = getattr(getattr(getattr(torch.ops, namespace), name), overload or "default")
        self.arguments = self.op._schema.arguments
        self._names = [each.name for each in self.arguments] if names is None else names

    def call(self, given: Given) -> Any:
        """Call the operator."""
        return self._results(self.op(*self.positional(given), **self.named(given)))

    def positional(self, given: Given) -> list[Any]:
        """Return the positional arguments of a call."""
        return [given[name] for name, each in zip(self._names, self.arguments) if not each.kwarg_only]  # noqa: B905

    def named(self, given: Given) -> dict[str, Any]:
        """Return the keyword arguments of a call."""
        return {each.name: given[name] for name, each in zip(self._names, self.arguments) if each.kwarg_only}  # noqa: B905

    def scripted(self, given: Given) -> Any:
        """Call the operator from TorchScript."""
        pairs = [*zip(self._names, self.arguments)]  # noqa: B905
        declared = ", ".join(f"{name}: {each.type.annotation_str}" for name, each in pairs)
        passed = ", ".join(f"{each.name}={name}" if each.kwarg_only else name for name, each in pairs)
        start = "return " if self.op._schema.returns else ""
        text = f"def f({declared}):\n    {start}{self._called}({passed})\n"
        return self._results(torch.jit.CompilationUnit(text).f(*(given[name] for name in self._names)))

    def _results(self, results: Any) -> Any:
        if self._kept is None:
            return results
        every = results if isinstance(results, tuple) else (results,)
        return tuple(every[i] for i in self._kept) if len(self._kept) != 1 else every[self._kept[0]]


def bound(ours: Side, sample: Any) -> dict[str, Any]:
    """Return a sample's arguments by name. The last element of a tuple may be a dict of keyword arguments.

    Raises:
        TypeError: the operator has other arguments.
    """
    values = [*sample] if isinstance(sample, tuple) else [sample]
    named = values.pop() if values and isinstance(values[-1], dict) else {}
    positional = [each.name for each in ours.arguments if not each.kwarg_only]
    defaults = {each.name: each.default_value for each in ours.arguments if each.has_default_value()}
    given = dict(zip(positional, values)) | named  # noqa: B905
    names = [each.name for each in ours.arguments]
    if len(values) > len(positional) or {*given} - {*names} or {*names} - {*given, *defaults}:
        raise TypeError(f"samples.py gives {', '.join(given)}; the operator has {', '.join(names)}")
    return defaults | given


def _copied(values: Any) -> Any:
    return tree_map_only(torch.Tensor, lambda each: each.detach().clone(), values)


def _of_tensors(call: Call, given: Given) -> tuple[Callable[..., Any], list[torch.Tensor]]:
    """Return the call as a function of its tensor arguments, and these. Without results, it returns a tensor."""
    leaves, spec = tree_flatten(dict(given))
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]

    def function(*tensors: torch.Tensor) -> Any:
        filled = dict(enumerate(leaves)) | dict(zip(places, tensors))  # noqa: B905
        results = call(tree_unflatten([*filled.values()], spec))
        return results if tree_leaves(results) else torch.zeros(())

    return function, [leaves[place] for place in places]


def eager(side: Side, given: Given) -> Any:
    """Call the operator."""
    function, tensors = _of_tensors(side.call, given)
    return function(*tensors)


def scripted(side: Side, given: Given) -> Any:
    """Call the operator in TorchScript."""
    function, tensors = _of_tensors(side.scripted, given)
    return function(*tensors)


def traced(side: Side, given: Given) -> Any:
    """Trace the operator, and call the trace."""
    function, tensors = _of_tensors(side.call, given)
    return torch.jit.trace(function, tuple(_copied(tensors)), check_trace=False)(*tensors)


def compiled(side: Side, given: Given) -> Any:
    """Compile the operator into one graph, and call it."""
    torch.compiler.reset()
    function, tensors = _of_tensors(side.call, given)
    return torch.compile(function, backend="aot_eager", fullgraph=True)(*tensors)


def exported(side: Side, given: Given) -> Any:
    """Export the operator, and call the exported program."""
    function, tensors = _of_tensors(side.call, given)

    module = torch.nn.Module()
    module.forward = function
    return torch.export.export(module, tuple(_copied(tensors))).module()(*tensors)


def batched(side: Side, given: Given) -> Any:
    """Call the operator under vmap, with each tensor stacked twice. Return the first of the two results."""
    function, tensors = _of_tensors(side.call, given)
    results = torch.vmap(function)(*(torch.stack([each, each]) for each in tensors))
    return tree_map_only(torch.Tensor, lambda each: each[0], results)


def gradients(side: Side, given: Given) -> Any:
    """Return the gradients of the sum of the operator's results."""
    given = tree_map_only(torch.Tensor, lambda each: each.requires_grad_(each.is_floating_point()), dict(given))
    inputs = [each for each in tree_leaves(given) if isinstance(each, torch.Tensor) and each.requires_grad]
    results = [each for each in tree_leaves(eager(side, given)) if isinstance(each, torch.Tensor)]
    sums = [each.sum() for each in results if each.requires_grad]
    return torch.autograd.grad(sums, inputs, allow_unused=True)


def checked(side: Side, given: Given) -> Any:
    """Run PyTorch's opcheck on the operator. It raises an error if a check fails."""
    torch.library.opcheck(side.op, tuple(side.positional(given)), side.named(given), test_utils=_CHECKS)
    return torch.zeros(())


_PROGRAMS = {
    "call": eager,
    "script": scripted,
    "trace": traced,
    "compile": compiled,
    "export": exported,
    "vmap": batched,
    "grad": gradients,
    "opcheck": checked,
}


def outcome(program: Callable[[Side, Given], Any], side: Side, given: Given) -> Any:
    """Return the results and the arguments after the call, or the error that it raises."""
    given = _copied(dict(given))
    torch.manual_seed(0)
    try:
        results = program(side, given)
    except Exception as error:
        return error
    return _copied((results, given))


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, Exception) or isinstance(other, Exception):
        return False
    (ours, spec), (theirs, of_theirs) = tree_flatten(one), tree_flatten(other)
    return spec == of_theirs and all(map(_is_same_leaf, ours, theirs))


def _is_same_leaf(one: Any, other: Any) -> bool:
    if not isinstance(one, torch.Tensor) or not isinstance(other, torch.Tensor):
        return type(one) is type(other) and one == other
    try:
        torch.testing.assert_close(one, other, equal_nan=True)
    except AssertionError:
        return False
    return True


# The verdicts that are no error, from best to worst. Other verdicts describe an error.
RIGHT = ("same", "only here", "-", "refused")


def worse(one: str, other: str) -> str:
    """Return the worse of two verdicts."""
    return max(one, other, key=lambda each: RIGHT.index(each) if each in RIGHT else len(RIGHT))


def _verdict(ours: Any, theirs: Any, expected: Any) -> str:
    """Return ``same``, ``only here`` (only ours is right), ``-`` (neither is), or a description of the error."""
    can, must = _is_same(ours, expected), _is_same(theirs, expected)
    if can or not must:
        return "same" if can and must else "only here" if can else "-"
    return _shown(ours) if isinstance(ours, Exception) else "another result"


def _shown(error: Exception) -> str:
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')}"


def compared(ours: Side, theirs: Side, given: Given) -> Iterator[tuple[str, str]]:
    """Yield each way to run the two operators, and its verdict."""
    expected = outcome(eager, theirs, given)
    if isinstance(expected, Exception) or not _is_same(outcome(eager, theirs, given), expected):
        yield "call", "refused"  # or the extension's results differ from call to call
        return
    written = [each.name for each in ours.arguments if each.is_write]
    for name, program in _PROGRAMS.items():
        if name in ("vmap", "grad") and written:
            continue  # ATen's operators refuse leaves, which the extension's may write
        of_theirs = outcome(program, theirs, given)
        expects = of_theirs if name in ("grad", "opcheck") else expected
        yield name, _verdict(outcome(program, ours, given), of_theirs, expects)
    if written:
        keys = (torch._C._dispatch_has_kernel_for_dispatch_key(theirs.full, key) for key in _GRADIENTS)
        yield from _writing(ours, given, written, has_gradient=any(keys))


def _writing(ours: Side, given: Given, written: Sequence[str], *, has_gradient: bool) -> Iterator[tuple[str, str]]:
    """Yield verdicts on the operator's writes: whether it increments versions, and refuses leaves that require grad."""
    counted = _copied(dict(given))
    tensors = [each for name in written for each in tree_leaves(counted[name]) if isinstance(each, torch.Tensor)]
    versions = [each._version for each in tensors]
    ours.call(counted)
    is_counted = all(each._version > before for each, before in zip(tensors, versions))  # noqa: B905
    yield "version", "same" if is_counted else "-" if has_gradient else "it does not count what it writes"
    if has_gradient or not any(each.is_floating_point() for each in tensors):
        return
    leaves = {name: _copied(given[name]) for name in written}
    tree_map_only(torch.Tensor, lambda each: each.requires_grad_(each.is_floating_point()), leaves)
    error = outcome(lambda side, _: side.call({**given, **leaves}), ours, given)
    yield "leaf", "same" if "leaf Variable" in str(error) else "it writes a leaf that requires grad"


def in_child(work: Callable[[], Any]) -> Any:
    """Run a function in a forked process. Return its result, passed through JSON; None if the process crashes."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        with os.fdopen(writer, "w", encoding="utf-8") as file:
            json.dump(work(), file)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, encoding="utf-8") as file:
        text = file.read()
    return json.loads(text) if os.waitpid(child, 0)[1] == 0 else None


def of_operator(full: str, facts: Mapping[str, Any], samples: Any) -> dict[str, str]:
    """Return the verdict on each way to run an operator: the worst of all inputs."""
    kept, found = facts["kept"], dict[str, str]()
    try:
        ours = Side(f"aten::{facts['entry'].partition('(')[0]}", None, None if kept is None or kept else ())
        theirs = Side(full, facts["arguments"], kept)
        for sample in samples(torch.rand):
            for way, verdict in compared(ours, theirs, bound(ours, sample)):
                found[way] = worse(found.get(way, "same"), verdict)
    except Exception as error:  # of samples.py, for instance
        found["call"] = _shown(error)
    return found


def read(request: Mapping[str, Any]) -> dict[str, dict[str, str] | None]:
    """Return the verdicts on each operator that has samples; None for one that crashes."""
    spec = importlib.util.spec_from_file_location("samples", request["samples"])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for each in request["modules"]:
        importlib.import_module(each)
    torch.set_num_threads(1)
    names = [facts["entry"].partition("(")[0].partition(".")[0] for facts in request["operators"].values()]
    if lacking := [name for name in names if name and not hasattr(torch.ops.aten, name)]:
        sys.exit(f"torch has no {', '.join(lacking)}")
    answer: dict[str, dict[str, str] | None] = {}
    for full, facts in request["operators"].items():
        samples = getattr(module, facts["entry"].partition("(")[0].replace(".", "_"), None)
        if facts["entry"] and samples:
            answer[full] = in_child(partial(of_operator, full, facts, samples))
    return answer


if __name__ == "__main__":
    asked, out = map(Path, sys.argv[1:])
    sys.path.pop(0)  # the folder of this file
    out.write_text(json.dumps(read(json.loads(asked.read_text(encoding="utf-8")))), encoding="utf-8")
