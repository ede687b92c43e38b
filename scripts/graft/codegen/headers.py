"""Headers of the merged operator set that differ from the base wheel's."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from . import FRAGMENTS, NARROW, NARROW_OF_FORMULAS, OPERATOR_HEADERS, torchgen
from .bindings import signatures
from .formulas import FORMULAS
from .operators import Grouped, Operators, Replacements, Selection
from .output import Output
from .torchgen import Infos, NativeFunctionsGroup, SelectingFileManager

# These headers number names, and the base's binaries were compiled with the numbers, so they stay unchanged. A new
# operator's symbol is interned at run time.
FROZEN = frozenset({"aten_interned_strings.h", "enum_tag.h"})

# PyTorch's setup.py wraps every installed header in this guard.
GUARD_OPEN = "#if !defined(TORCH_STABLE_ONLY) && !defined(TORCH_TARGET_VERSION)\n"
GUARD_CLOSE = (
    "\n#else\n"
    '#error "This file should not be included when either TORCH_STABLE_ONLY or TORCH_TARGET_VERSION is defined."\n'
    "#endif  // !defined(TORCH_STABLE_ONLY) && !defined(TORCH_TARGET_VERSION)\n"
)


# The header with the classes of a unit's autograd nodes.
_NODES = Path("own/torch/csrc/autograd/generated/Functions.h")


class WheelOutput(Output):
    """The files of the new wheel, without headers that are identical to those in the tree of the ``base``."""

    def __init__(self, folder: Path, base: Path) -> None:
        super().__init__(folder)
        self._base = base
        with (base / "torch/include/ATen/Functions.h").open(encoding="utf-8") as file:
            self._is_guarded = file.readline() == GUARD_OPEN

    def write(self, name: str | Path, text: str) -> None:
        if Path(name).suffix == ".h":
            if self._is_guarded:
                text = f"{GUARD_OPEN}{text}{GUARD_CLOSE}"
            base = self._base / name
            if base.is_file():
                base_text = base.read_text(encoding="utf-8")
                if base_text == text:
                    return
                require_additions_only(name, base_text, text)
        super().write(name, text)


def require_additions_only(name: str | Path, base: str, merged: str) -> None:
    """Reject a header in which a line of the base's is missing or moved: the base's binaries were compiled with it."""
    lines = iter(merged.splitlines())
    for number, wanted in enumerate(base.splitlines(), 1):
        if not any(line == wanted for line in lines):
            raise ValueError(
                f"{name}:{number}: the merged YAML would change this header, not only add to it. "
                f"The base's binaries were compiled with the line `{wanted.strip()}`"
            )


def generate_operator_headers(operators: Operators, wheel: Output, internal: Output) -> None:
    """Generate the headers for calling or defining the new operators: ``ATen/ops/<name>*.h``, and ``internal`` ones,
    which are needed to compile generated sources, but not shipped in a wheel. Declared operators get headers, too.
    """
    suffixes = ("", "_ops", "_meta", "_native", *(f"_{key.lower()}_dispatch" for key in torchgen.FUNCTIONS_KEYS))
    added = Selection(operators, [*operators.new.functions, *operators.declared.functions])
    wanted = {f"{name}{suffix}.h" for name in added.root_names for suffix in suffixes}
    # If the base has operators of the same name, one header declares them all.
    overloads = Selection(operators, added.overloads)
    torchgen.gen_headers(overloads.arguments, wheel, of_operators=wanted.__contains__)
    names = ("FunctionalInverses.h", "ViewMetaClasses.h")
    manager = SelectingFileManager("include/ATen", operators.templates, out=internal, wanted=names.__contains__)
    torchgen.gen_source_files(operators.every.arguments, manager)


def generate_replaced_headers(kernels: Selection, operators: Operators, base: Path, internal: Output) -> None:
    """Generate ``ATen/ops/<name>_native.h``: the base's header, the kernels that it does not declare, and PyTorch's own
    in namespace ``at::native::stock``; and ``<name>_<key>_dispatch.h`` for keys that PyTorch has no kernel for.

    A wheel keeps the base's headers, since no other code calls these kernels.
    """

    def is_missing(name: str) -> bool:
        return name.endswith("_dispatch.h") and not (base / "torch/include/ATen/ops" / name).is_file()

    torchgen.gen_headers(kernels.arguments, internal, of_operators=is_missing, include="include")
    declared: dict[str, dict[str, None]] = {}
    for group in kernels.grouped:
        name = f"ATen/ops/{group.root_name}_native.h"
        text = (base / "torch/include" / name).read_text(encoding="utf-8")
        for index in kernels.whole.backend_indices.values():
            found = [each for each in torchgen.compute_native_function_declaration(group, index) if each not in text]
            space = next((kernel.cpp_namespace for kernel in index.index.values() if kernel.kernel in str(found)), "")
            lines = [f"namespace {space} {{\n{each}\n}} // namespace {space}\n" for each in found]
            declared.setdefault(name, {}).update(dict.fromkeys(lines))
        stock = [text for index in operators.backend_indices.values() for text in _stock_kernels(group, index)]
        texts = "".join(dict.fromkeys(stock))
        declared[name][f"namespace at::native::stock {{\n{texts}}} // namespace at::native::stock\n"] = None
    for name, lines_of in declared.items():
        internal.write(f"include/{name}", "".join([f"#pragma once\n#include_next <{name}>\n", *lines_of]))


def _stock_kernels(group: Grouped, index: torchgen.BackendIndex) -> Iterator[str]:
    """Yield the declarations of a group's kernels for a key, for namespace ``at::native::stock``.

    Trampolines define them as functions that jump to PyTorch's kernels (compile/trampolines.py). The kernel of a
    structured operator is a method. A function calls it on the object of another kernel, which has the same meta class.
    """
    kernel = index.get_kernel(group)
    if kernel is None or kernel.cpp_namespace == "at::native":
        # Since 2.15, kernels of a device are declared with its library's macro, but these functions are all ours.
        declared = torchgen.compute_native_function_declaration(group, index)
        yield from (re.sub(r"\bTORCH_\w*API\b", "TORCH_API", f"{each}\n") for each in declared)
    if kernel is not None and kernel.structured and isinstance(group, NativeFunctionsGroup):
        arguments = torchgen.structured.impl_arguments(group)
        parameters = [f"at::meta::structured_{torchgen.meta.name(group)}& op", *(each.decl() for each in arguments)]
        names = ", ".join(each.name for each in arguments)
        call = f"static_cast<structured_{kernel.kernel}&>(op).impl({names});"
        yield f"inline void {kernel.kernel}({', '.join(parameters)}) {{\n  {call}\n}}\n"


def generate_replaced_nodes(replaced: Replacements, out: Output) -> None:
    """Generate the headers of the unit that replaces kernels and formulas of the base.

    Its autograd nodes have the names of the base's, but may be other classes, so they have a namespace of their own.
    """
    generate_unit_headers(replaced.formulas, out)
    if _NODES in out.names:
        out.write(_NODES, torchgen.with_nodes_in("graft", out.read(_NODES)))
    narrow_headers(Selection(replaced.kernels.whole, [*replaced.kernels.functions, *replaced.formulas.functions]), out)


def generate_aten_headers(operators: Operators, wheel: Output) -> None:
    """Generate the headers that list operators: ``ATen/Functions.h``, ``ATen/core/TensorBody.h`` etc."""

    def is_wanted(name: str) -> bool:
        return name.endswith(".h") and name not in FROZEN

    torchgen.gen_headers(operators.every.arguments, wheel, others=is_wanted)


def generate_unit_headers(selection: Selection, out: Output) -> None:
    """Generate the headers of autograd with one unit's operators only, which makes them much faster to parse."""
    # An operator on lists of tensors may use the autograd nodes of the one on tensors, which may be in another unit.
    used = [info for each in selection.with_infos for info in (each.info or {}).values()]
    infos = {**{info.func.func: {"Default": info} for info in used}, **selection.infos}
    new = {info.op for info in used if info.op and info.func in selection.whole.new}
    generate_autograd_headers(selection, infos, _OwnNodes(out, new), "own")


class _OwnNodes(Output):
    """Writes to ``out``, with each autograd node of ``nodes`` in a namespace of its own in code that a running process
    loads. Nodes are registered by type, and such a process may load several nodes of the same name.
    """

    def __init__(self, out: Output, nodes: Collection[str]) -> None:
        super().__init__(out.folder)
        self.names = out.names
        self._nodes = nodes

    def write(self, name: str | Path, text: str) -> None:
        is_theirs = Path(name).name == _NODES.name
        super().write(name, torchgen.with_nodes_by_content(text, self._nodes, "GRAFT_LOADED") if is_theirs else text)


def generate_autograd_headers(selection: Selection, infos: Infos, out: Output, folder: str) -> None:
    """Generate the headers of torch/csrc/autograd/generated below ``folder``, with the formulas ``infos``."""
    templates, target = selection.whole.autograd_templates, f"{folder}/torch/csrc/autograd/generated"
    with torchgen.autograd_writes(out, ".h"):
        torchgen.gen_autograd_functions_lib(target, infos, templates)
        torchgen.gen_factories(selection.overloads, target, templates)
        torchgen.gen_view_funcs(target, selection.with_infos, templates)
    pairs = [
        pair for pair in signatures(selection.whole, method=False) if pair.function.root_name in selection.root_names
    ]
    manager = SelectingFileManager(target, templates, out=out)
    torchgen.create_python_return_type_bindings_header(manager, pairs, lambda _: True, "python_return_types.h")


def narrow_headers(selection: Selection, out: Output) -> None:
    """Write the headers that include all operators' headers, with only those that the unit's sources use. Those that
    its formulas use are added in a folder of their own, since most edits of a formula change nothing else.
    """
    templates, roots = selection.whole.templates, selection.whole.roots_by_name
    sources = {name for name in out.names if name.suffix == ".cpp" and name.parts[0] not in ("vectorized", "cuda")}
    in_formulas = sources & {Path(FORMULAS)}

    def named(texts: Iterable[str]) -> list[str]:
        return sorted({roots[word] for text in texts for word in re.findall(r"[A-Za-z_]\w*", text) if word in roots})

    # The template contains handwritten functions, which call operators, too.
    others = named([*map(out.read, sources - in_formulas), (templates / "Functions.h").read_text(encoding="utf-8")])
    of_formulas = named(map(out.read, in_formulas))
    redispatch = list(map(torchgen.ComputeRedispatchFunction(), selection.overloads))
    texts = {"RedispatchFunctions": {"function_redispatch_definitions": redispatch}}
    for name, suffix in OPERATOR_HEADERS.items():
        includes, more = ([f"#include <ATen/ops/{root}{suffix}.h>" for root in each] for each in (others, of_formulas))
        texts[name] = {f"{name}_includes": includes, f"{name}_declarations": []}
        if more:
            header = "\n".join(["#pragma once", f"#include_next <ATen/{name}.h>", *more, ""])
            out.write(Path(NARROW_OF_FORMULAS, "ATen", f"{name}.h"), header)
    manager = SelectingFileManager(f"{NARROW}/ATen", templates, out=out)
    for name, env in texts.items():
        manager.write(f"{name}.h", env.copy)


def generate_fragments(operators: Operators, out: Output) -> None:
    """Write ``fragments.json``: for each new root name its C++ names and its parts of headers.

    ``names`` are the identifiers, ``declarations`` and ``definitions`` those of methods in TensorBody.h, and
    ``plumbing`` and ``redispatch`` the functions in VmapGeneratedPlumbing.h and RedispatchFunctions.h. A kernel that
    calls no new operator is compiled with the base's own headers, so a new operator does not compile it again; other
    kernels get headers with only the operators that they call.
    """
    methods = partial(torchgen.ComputeTensorMethod, static_dispatch_backend_indices=[])
    parts = {
        "declarations": methods(target=torchgen.Target.DECLARATION),
        "definitions": methods(target=torchgen.Target.DEFINITION),
        "plumbing": torchgen.ComputeBatchRulePlumbing(),
        "redispatch": torchgen.ComputeRedispatchFunction(),
    }
    added = [*operators.new.functions, *operators.declared.functions]
    found: dict[str, dict[str, Any]] = {f.root_name: {"names": [], **{part: [] for part in parts}} for f in added}
    for name, root in sorted(operators.roots_by_name.items()):
        if root in found:
            found[root]["names"].append(name)
    for f in added:
        for part, generate in parts.items():
            if text := generate(f):
                found[f.root_name][part].append(text)
    out.write(FRAGMENTS, json.dumps(found, indent=1, sort_keys=True))
