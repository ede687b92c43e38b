"""Headers of the merged operator set, where they differ from the base wheel's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from inspect import signature
from pathlib import Path

from torchgen.gen import gen_headers
from torchgen.model import dispatch_keys
from torchgen.packaged.autograd.gen_autograd_functions import gen_autograd_functions_lib
from torchgen.packaged.autograd.gen_python_functions import create_python_return_type_bindings_header
from torchgen.packaged.autograd.gen_variable_factories import gen_variable_factories
from torchgen.packaged.autograd.gen_view_funcs import gen_view_funcs
from torchgen.selective_build.selector import SelectiveBuilder

from .bindings import python_functions
from .operators import ABSENT_BACKENDS, FUNCTIONS_KEYS, Derivatives, Operators, structured
from .sources import TEMPLATES, run_gen_source_files
from .writer import Output, SelectingFileManager, autograd_writes_with

HEADER_KEYS = [key for key in dispatch_keys if key not in ABSENT_BACKENDS]

# These number names that the base's binaries were compiled with: they stay as the base has them.
# A new operator's symbol is interned at run time.
FROZEN = frozenset({"aten_interned_strings.h", "enum_tag.h"})

# Needed to compile generated sources, but not shipped in a wheel.
INTERNAL = frozenset({"FunctionalInverses.h", "ViewMetaClasses.h"})

# setup.py of PyTorch wraps every installed header in this guard.
GUARD_OPEN = "#if !defined(TORCH_STABLE_ONLY) && !defined(TORCH_TARGET_VERSION)\n"
GUARD_CLOSE = (
    "\n#else\n"
    '#error "This file should not be included when either TORCH_STABLE_ONLY or TORCH_TARGET_VERSION is defined."\n'
    "#endif  // !defined(TORCH_STABLE_ONLY) && !defined(TORCH_TARGET_VERSION)\n"
)


@dataclass(frozen=True)
class HeaderSink:
    """Stores a generated header in the overlay unless the base holds the same one.

    Args:
        base: the base wheel's tree.
        overlay: the new wheel's additions to it.
    """

    base: Path
    overlay: Output

    @property
    def include(self) -> Path:
        """Where the overlay's headers go."""
        return self.overlay.folder / "torch/include"

    def __call__(self, path: Path, text: str) -> None:
        name = path.relative_to(self.overlay.folder)
        if self._base_is_guarded():
            text = f"{GUARD_OPEN}{text}{GUARD_CLOSE}"
        base = self.base / name
        if base.is_file():
            base_text = base.read_text()
            if base_text == text:
                return
            require_additions_only(name, base_text, text)
        self.overlay(path, text)

    def _base_is_guarded(self) -> bool:
        with (self.base / "torch/include/ATen/Functions.h").open() as file:
            return file.readline() == GUARD_OPEN


def require_additions_only(name: Path, base: str, merged: str) -> None:
    """Refuse a header that loses or reorders a line of the base's: the base's binaries were compiled with it.

    Raises:
        ValueError: naming the first line that is gone.
    """
    lines = iter(merged.splitlines())
    for number, wanted in enumerate(base.splitlines(), 1):
        if not any(line == wanted for line in lines):
            raise ValueError(
                f"{name}:{number}: the merged YAML would change this header, not only add to it. "
                f"The base's binaries were compiled with the line `{wanted.strip()}`"
            )


def generate_aten_headers(operators: Operators, sink: HeaderSink, internal: Output) -> None:
    """Generate the headers of ATen that differ from the base's.

    Args:
        sink: takes those of the wheel.
        internal: takes headers that no wheel ships, below ``include``.
    """
    templates = sink.base / "torchgen/packaged/ATen/templates"
    out = sink.include / "ATen"
    operator_headers = {
        f"{name}{suffix}.h"
        for name in operators.new_root_names
        for suffix in ("", "_ops", "_meta", "_native", *(f"_{key.lower()}_dispatch" for key in FUNCTIONS_KEYS))
    }

    def manager(folder: Path, wanted: Callable[[str], bool]) -> SelectingFileManager:
        return SelectingFileManager(folder, templates, sink=sink, wanted=wanted)

    general = manager(out, is_open_header)
    # Where enum_tag.h goes, which is not generated here; older torchgen has one folder less.
    more = {"headeronly_fm": general} if "headeronly_fm" in signature(gen_headers).parameters else {}
    gen_headers(
        native_functions=operators.functions,
        valid_tags=operators.valid_tags,
        grouped_native_functions=operators.grouped,
        structured_native_functions=structured(operators.grouped),
        static_dispatch_idx=[],
        selector=SelectiveBuilder.get_nop_selector(),
        backend_indices=operators.backend_indices,
        **more,
        core_fm=manager(out / "core", is_open_header),
        cpu_fm=general,
        device_fms={"cuda": general},
        ops_fm=manager(out / "ops", operator_headers.__contains__),
        dispatch_keys=HEADER_KEYS,
        functions_keys=FUNCTIONS_KEYS,
        rocm=False,
        per_operator_headers=True,
    )
    _generate_internal(operators, templates, internal)


def is_open_header(filename: str) -> bool:
    """Whether the merged set may change this header."""
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
    templates = sink.base / "torchgen/packaged/autograd/templates"
    out = sink.include / "torch/csrc/autograd/generated"
    yaml = operators.yaml
    manager = partial(SelectingFileManager, sink=sink, wanted=is_open_header)
    with autograd_writes_with(manager):
        gen_autograd_functions_lib(str(out), derivatives.infos, str(templates))
        gen_variable_factories(str(out), str(yaml.native_functions), str(yaml.tags), str(templates))
        gen_view_funcs(str(out), derivatives.functions, str(templates))
    create_python_return_type_bindings_header(
        manager(out, templates), python_functions(operators), lambda _: True, "python_return_types.h"
    )
