"""Headers of the merged operator set that differ from the base wheel's."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import TypeAlias
from unittest.mock import patch

from torchgen import gen
from torchgen.api.autograd import DifferentiabilityInfo, NativeFunctionWithDifferentiabilityInfo
from torchgen.gen import ComputeRedispatchFunction, gen_headers
from torchgen.model import FunctionSchema, NativeFunction, NativeFunctionsGroup, dispatch_keys
from torchgen.packaged.autograd import gen_variable_factories as factories
from torchgen.packaged.autograd.gen_autograd_functions import gen_autograd_functions_lib
from torchgen.packaged.autograd.gen_python_functions import create_python_return_type_bindings_header
from torchgen.packaged.autograd.gen_view_funcs import gen_view_funcs
from torchgen.selective_build.selector import SelectiveBuilder

from .bindings import signatures
from .operators import ABSENT_BACKENDS, FUNCTIONS_KEYS, Derivatives, Grouped, Operators, structured
from .sources import TEMPLATES, run_gen_source_files
from .writer import Output, SelectingFileManager, Sink, autograd_writes_with

Infos: TypeAlias = Mapping[FunctionSchema, Mapping[str, DifferentiabilityInfo]]

_TEMPLATES = "torchgen/packaged/ATen/templates"

HEADER_KEYS = [key for key in dispatch_keys if key not in ABSENT_BACKENDS]

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
    _gen_headers(operators, functions, grouped, sink, wanted=lambda _: False, wanted_ops=wanted.__contains__)
    _generate_internal(operators, sink.base / _TEMPLATES, internal)


def generate_aten_headers(operators: Operators, sink: HeaderSink) -> None:
    """Generate the headers that list operators: ``ATen/Functions.h``, ``ATen/core/TensorBody.h`` etc."""
    # This skips torchgen's declarations for headers of single operators, which are not needed here.
    with patch.object(gen, "get_native_function_declarations", lambda **_: []):
        _gen_headers(operators, operators.functions, operators.grouped, sink, wanted=is_open_header)


def _root_of(grouped: Grouped) -> str:
    return (grouped.functional if isinstance(grouped, NativeFunctionsGroup) else grouped).root_name


def _gen_headers(
    operators: Operators,
    functions: Sequence[NativeFunction],
    grouped: Sequence[Grouped],
    sink: HeaderSink,
    *,
    wanted: Callable[[str], bool],
    wanted_ops: Callable[[str], bool] = lambda _: False,
) -> None:
    """Run torchgen's ``gen_headers`` (torchgen/gen.py). ``sink`` receives the selected files."""
    out = sink.include / "ATen"

    def manager(folder: Path, wanted: Callable[[str], bool]) -> SelectingFileManager:
        return SelectingFileManager(folder, sink.base / _TEMPLATES, sink=sink, wanted=wanted)

    general = manager(out, wanted)
    # The folder of enum_tag.h, which is not generated here. Older versions of torchgen have one folder less.
    more = {"headeronly_fm": general} if "headeronly_fm" in signature(gen_headers).parameters else {}
    gen_headers(
        native_functions=functions,
        valid_tags=operators.valid_tags,
        grouped_native_functions=grouped,
        structured_native_functions=structured(grouped),
        static_dispatch_idx=[],
        selector=SelectiveBuilder.get_nop_selector(),
        backend_indices=operators.backend_indices,
        **more,
        core_fm=manager(out / "core", wanted),
        cpu_fm=general,
        device_fms={"cuda": general},
        ops_fm=manager(out / "ops", wanted_ops),
        dispatch_keys=HEADER_KEYS,
        functions_keys=FUNCTIONS_KEYS,
        rocm=False,
        per_operator_headers=True,
    )


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
    run_gen_source_files(
        operators,
        manager,
        manager,
        functions=operators.functions,
        grouped=operators.grouped,
        view_groups=operators.view_groups,
        selector=SelectiveBuilder.get_nop_selector(),
        dispatch_keys=[],
    )


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
    parsed = SimpleNamespace(native_functions=functions)
    # Otherwise torchgen would parse the YAML again.
    parse = patch.object(factories, "parse_native_yaml", lambda *_: parsed)
    with autograd_writes_with(manager), parse:
        gen_autograd_functions_lib(str(out), infos, str(templates))
        factories.gen_variable_factories(str(out), "", "", str(templates))
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
