"""Headers of the merged operator set that differ from the base wheel's."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from torchgen.api.autograd import DifferentiabilityInfo, NativeFunctionWithDifferentiabilityInfo
from torchgen.gen import ComputeRedispatchFunction, ComputeTensorMethod
from torchgen.gen_vmap_plumbing import ComputeBatchRulePlumbing
from torchgen.model import FunctionSchema, NativeFunction
from torchgen.packaged.autograd.gen_autograd_functions import gen_autograd_functions_lib
from torchgen.packaged.autograd.gen_python_functions import create_python_return_type_bindings_header
from torchgen.packaged.autograd.gen_view_funcs import gen_view_funcs
from torchgen.utils import Target

from . import FRAGMENTS, upstream
from .bindings import signatures
from .operators import Derivatives, Operators
from .upstream import FUNCTIONS_KEYS, Grouped
from .writer import TEMPLATES, Output, SelectingFileManager, Sink

Infos: TypeAlias = Mapping[FunctionSchema, Mapping[str, DifferentiabilityInfo]]

_TEMPLATES = "torchgen/packaged/ATen/templates"

# These headers number names that the base's binaries were compiled with, so they stay unchanged. A new operator's
# symbol is interned at run time.
FROZEN = frozenset({"aten_interned_strings.h", "enum_tag.h"})

# Needed to compile generated sources, but not shipped in a wheel.
INTERNAL = frozenset({"FunctionalInverses.h", "ViewMetaClasses.h"})

# PyTorch's setup.py wraps every installed header in this guard.
GUARD_OPEN = "#if !defined(TORCH_STABLE_ONLY) && !defined(TORCH_TARGET_VERSION)\n"
GUARD_CLOSE = (
    "\n#else\n"
    '#error "This file should not be included when either TORCH_STABLE_ONLY or TORCH_TARGET_VERSION is defined."\n'
    "#endif  // !defined(TORCH_STABLE_ONLY) && !defined(TORCH_TARGET_VERSION)\n"
)


@dataclass(frozen=True)
class HeaderSink:
    """Stores a generated header of the wheel unless it is identical to the base's.

    Args:
        base: the base wheel's tree.
        wheel: the files of the new wheel that differ.
    """

    base: Path
    wheel: Output

    @property
    def include(self) -> Path:
        """The folder of the new wheel's headers."""
        return self.wheel.folder / "torch/include"

    def manager(
        self, folder: str, wanted: Callable[[str], bool], wanted_ops: Callable[[str], bool]
    ) -> SelectingFileManager:
        """Return a file manager for a folder below ``ATen``; ``wanted_ops`` is for ``ATen/ops``."""
        is_wanted = wanted_ops if folder == "ops" else wanted
        return SelectingFileManager(self.include / "ATen" / folder, self.base / _TEMPLATES, sink=self, wanted=is_wanted)

    def __call__(self, path: Path, text: str) -> None:
        name = path.relative_to(self.wheel.folder)
        if self._base_is_guarded():
            text = f"{GUARD_OPEN}{text}{GUARD_CLOSE}"
        base = self.base / name
        if base.is_file():
            base_text = base.read_text(encoding="utf-8")
            if base_text == text:
                return
            require_additions_only(name, base_text, text)
        self.wheel(path, text)

    def _base_is_guarded(self) -> bool:
        with (self.base / "torch/include/ATen/Functions.h").open(encoding="utf-8") as file:
            return file.readline() == GUARD_OPEN


def require_additions_only(name: Path, base: str, merged: str) -> None:
    """Reject a header in which a line of the base's is missing or moved: the base's binaries were compiled with it.

    Raises:
        ValueError: names the first missing line.
    """
    lines = iter(merged.splitlines())
    for number, wanted in enumerate(base.splitlines(), 1):
        if not any(line == wanted for line in lines):
            raise ValueError(
                f"{name}:{number}: the merged YAML would change this header, not only add to it. "
                f"The base's binaries were compiled with the line `{wanted.strip()}`"
            )


def generate_operator_headers(operators: Operators, sink: HeaderSink, internal: Output) -> None:
    """Generate the headers for calling or defining the new operators: ``ATen/ops/<name>*.h``.

    Args:
        operators: the merged set.
        sink: receives the headers of the wheel.
        internal: receives headers that no wheel ships, below ``include``.
    """
    suffixes = ("", "_ops", "_meta", "_native", *(f"_{key.lower()}_dispatch" for key in FUNCTIONS_KEYS))
    wanted = {f"{name}{suffix}.h" for name in operators.new_root_names for suffix in suffixes}
    # If the base has operators of the same name, one header declares them all.
    functions = [f for f in operators.functions if f.root_name in operators.new_root_names]
    grouped = [g for g in operators.grouped if _root_of(g) in operators.new_root_names]
    selection = replace(operators.every, functions=functions, grouped=grouped)
    manager = partial(sink.manager, wanted=lambda _: False, wanted_ops=wanted.__contains__)
    upstream.gen_headers(selection, operators.valid_tags, manager, of_operators=True)
    _generate_internal(operators, sink.base / _TEMPLATES, internal)


def generate_aten_headers(operators: Operators, sink: HeaderSink) -> None:
    """Generate the headers that list operators: ``ATen/Functions.h``, ``ATen/core/TensorBody.h`` etc."""
    manager = partial(sink.manager, wanted=is_open_header, wanted_ops=lambda _: False)
    upstream.gen_headers(operators.every, operators.valid_tags, manager, of_operators=False)


def _root_of(grouped: Grouped) -> str:
    return (grouped if isinstance(grouped, NativeFunction) else grouped.functional).root_name


def is_open_header(filename: str) -> bool:
    """Return whether the merged set may change this header."""
    return filename.endswith(".h") and filename not in FROZEN


def _generate_internal(operators: Operators, templates: Path, out: Output) -> None:
    manager = SelectingFileManager(
        out.folder / "include/ATen",
        templates,
        sink=out,
        wanted=INTERNAL.__contains__,
        own_templates=TEMPLATES,
    )
    upstream.gen_source_files(operators.every, manager)


def generate_autograd_headers(operators: Operators, derivatives: Derivatives, sink: HeaderSink) -> None:
    """Generate the headers of torch/csrc/autograd/generated that differ from the base's into ``sink``."""
    out = sink.include / "torch/csrc/autograd/generated"
    _gen_autograd_headers(operators, derivatives.infos, derivatives.functions, operators.functions, out, sink)


def generate_unit_headers(operators: Operators, derivatives: Derivatives, tree: Path, out: Output) -> None:
    """Generate those headers with this unit's operators only, which makes them much faster to parse."""
    folder = out.folder / "own/torch/csrc/autograd/generated"
    templates = HeaderSink(tree, out)
    functions = [f for f in operators.functions if f.root_name in operators.new_root_names]
    # An operator on lists of tensors may use the autograd nodes of the one on tensors, which may be in another unit.
    used = [info for each in derivatives.new_functions for info in (each.info or {}).values()]
    infos = {**{info.func.func: {"Default": info} for info in used}, **derivatives.new_infos}
    _gen_autograd_headers(operators, infos, derivatives.new_functions, functions, folder, templates, sink=out)


def _gen_autograd_headers(
    operators: Operators,
    infos: Infos,
    with_infos: Sequence[NativeFunctionWithDifferentiabilityInfo],
    functions: Sequence[NativeFunction],
    out: Path,
    base: HeaderSink,
    *,
    sink: Sink | None = None,
) -> None:
    templates = base.base / "torchgen/packaged/autograd/templates"
    manager = partial(SelectingFileManager, sink=sink or base, wanted=is_open_header)
    with upstream.autograd_writes_with(manager):
        gen_autograd_functions_lib(str(out), infos, str(templates))
        upstream.gen_factories(functions, out, templates)
        gen_view_funcs(str(out), with_infos, str(templates))
    names = {str(f.func.name) for f in functions}
    pairs = [pair for pair in signatures(operators.whole, method=False) if str(pair.function.func.name) in names]
    create_python_return_type_bindings_header(manager(out, templates), pairs, lambda _: True, "python_return_types.h")


def narrow_headers(operators: Operators, text: str, templates: Path, out: Output) -> None:
    """Write versions of the headers that include all operators' headers, with only those that ``text`` uses.

    Args:
        operators: the merged set.
        text: the sources of a unit.
        templates: torchgen's templates for ATen.
        out: receives the headers, below ``narrow``.
    """
    roots = operators.whole.roots_by_name
    # The template contains handwritten functions.
    text += (templates / "Functions.h").read_text(encoding="utf-8")
    named = sorted({roots[word] for word in set(re.findall(r"[A-Za-z_]\w*", text)) if word in roots})
    own = [f for f in operators.functions if f.root_name in operators.new_root_names]
    redispatch = [ComputeRedispatchFunction()(f) for f in own]
    manager = SelectingFileManager(out.folder / "narrow/ATen", templates, sink=out, wanted=lambda _: True)
    for name, suffix in (("Functions", ""), ("NativeFunctions", "_native"), ("Operators", "_ops")):
        env = {f"{name}_includes": [f"#include <ATen/ops/{root}{suffix}.h>" for root in named]}
        manager.write(f"{name}.h", partial(dict, {**env, f"{name}_declarations": []}))
    manager.write("RedispatchFunctions.h", lambda: {"function_redispatch_definitions": redispatch})


def generate_fragments(operators: Operators, out: Output) -> None:
    """Write ``fragments.json``: for each new root name its C++ names and its parts of headers.

    ``names`` are the identifiers, ``declarations`` and ``definitions`` those of methods in TensorBody.h, and
    ``plumbing`` and ``redispatch`` the functions in VmapGeneratedPlumbing.h and RedispatchFunctions.h. A kernel that
    calls no new operator is compiled with the base's own headers, so adding one does not compile it again; others get
    headers with only the operators that they call.
    """
    found: dict[str, dict[str, Any]] = {}
    by_root: dict[str, list[NativeFunction]] = {}
    for f in operators.functions:
        if f.root_name in operators.new_root_names:
            by_root.setdefault(f.root_name, []).append(f)
    declare = ComputeTensorMethod(target=Target.DECLARATION, static_dispatch_backend_indices=[])
    define = ComputeTensorMethod(target=Target.DEFINITION, static_dispatch_backend_indices=[])
    for root, functions in by_root.items():
        new = [f for f in functions if operators.is_new(f)]
        found[root] = {
            "names": sorted(name for name, of in operators.roots_by_name.items() if of == root),
            "declarations": [text for f in new if (text := declare(f))],
            "definitions": [text for f in new if (text := define(f))],
            "plumbing": [text for f in new if (text := ComputeBatchRulePlumbing()(f))],
            "redispatch": [text for f in new if (text := ComputeRedispatchFunction()(f))],
        }
    out(out.folder / FRAGMENTS, json.dumps(found, indent=1, sort_keys=True))
