"""torchgen, bent: everything that replaces a part of it, changes its lists or depends on its version is here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeAlias
from unittest.mock import patch

from torchgen import gen, gen_functionalization_type
from torchgen.gen import ParsedYaml
from torchgen.model import (
    BackendIndex,
    DispatchKey,
    FunctionSchema,
    Location,
    NativeFunction,
    NativeFunctionsGroup,
    NativeFunctionsViewGroup,
    dispatch_keys,
)
from torchgen.native_function_generation import FUNCTIONAL_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT
from torchgen.packaged.autograd import (
    gen_autograd_functions,
    gen_inplace_or_view_type,
    gen_trace_type,
    gen_variable_factories,
    gen_variable_type,
    gen_view_funcs,
)
from torchgen.packaged.autograd.gen_inplace_or_view_type import (
    ALL_VIEW_FUNCTIONS,
    RETURNS_VIEWS_OF_INPUT,
    VIEW_FUNCTIONS,
)
from torchgen.packaged.autograd.gen_variable_type import GRADIENT_IMPLEMENTED_FOR_COMPLEX
from torchgen.selective_build.selector import SelectiveBuilder
from torchgen.utils import FileManager

from ..inputs.merge import Merged
from .description import ABSENT_DEVICES

Grouped: TypeAlias = NativeFunction | NativeFunctionsGroup
Fields: TypeAlias = Mapping[str, Any]

# As torchgen's own command line filters the keys of absent devices (torchgen/gen.py, main).
ABSENT_BACKENDS = frozenset(
    {DispatchKey.MPS, DispatchKey.SparseMPS, DispatchKey.SparseCsrMPS, DispatchKey.XPU, DispatchKey.MTIA}
)
# The keys that have a <Key>Functions.h (torchgen/gen.py, main).
FUNCTIONS_KEYS = {
    DispatchKey.CPU,
    DispatchKey.CUDA,
    DispatchKey.CompositeImplicitAutograd,
    DispatchKey.CompositeImplicitAutogradNestedTensor,
    DispatchKey.CompositeExplicitAutograd,
    DispatchKey.CompositeExplicitAutogradNonFunctional,
    DispatchKey.Meta,
}
HEADER_KEYS = [key for key in dispatch_keys if key not in ABSENT_BACKENDS]


def _is_of(key: DispatchKey, devices: Collection[str]) -> bool:
    """Return whether ``key`` belongs to one of ``devices``, dense or other: SparseCsrMPS belongs to MPS."""
    return str(key).endswith(tuple(devices))


# Registrations for a device without a library have nothing to call. Those for CUDA are written separately.
KEYS_BUT_CUDA = [key for key in dispatch_keys if not _is_of(key, (*ABSENT_DEVICES, "CUDA"))]
# The dispatch keys of CUDA, dense and other.
CUDA_KEYS = [key for key in dispatch_keys if _is_of(key, ("CUDA",))]


@dataclass(frozen=True)
class Selection:
    """What one run of torchgen generates for.

    Args:
        functions: the functions.
        grouped: the same in groups of the functional, in-place and out variants of one operator.
        view_groups: the views among them, in groups.
        indices: the kernels of all functions.
    """

    functions: Sequence[NativeFunction]
    grouped: Sequence[Grouped]
    view_groups: Sequence[NativeFunctionsViewGroup]
    indices: dict[DispatchKey, BackendIndex]

    @property
    def arguments(self) -> dict[str, Any]:
        """torchgen's arguments for it."""
        return {
            "native_functions": self.functions,
            "grouped_native_functions": self.grouped,
            "structured_native_functions": [g for g in self.grouped if isinstance(g, NativeFunctionsGroup)],
            "backend_indices": self.indices,
            "static_dispatch_idx": [],
            "functions_keys": FUNCTIONS_KEYS,
            "rocm": False,
            "per_operator_headers": True,
        }


def parse(functions: Path, tags: Path, lines: Merged | None) -> ParsedYaml:
    """Parse native_functions.yaml. With the map ``lines``, functions and messages have the places that it gives."""

    def location(file: str, line: int) -> Location:
        source, number = lines.place(line) if lines and file == str(functions) else (file, line)
        return Location(str(source), number)

    with patch.object(gen, "Location", location):
        return gen.parse_native_yaml(str(functions), str(tags), set(ABSENT_BACKENDS))


def gen_headers(
    selection: Selection, valid_tags: set[str], manager: Callable[[str], FileManager], *, of_operators: bool
) -> None:
    """Run torchgen's ``gen_headers`` (torchgen/gen.py).

    Args:
        selection: what to generate for.
        valid_tags: the valid tags.
        manager: returns the file manager for a folder below ``ATen``.
        of_operators: whether to compute the headers of single operators, which takes longest.
    """
    general = manager("")
    # The folder of enum_tag.h, which is not generated here. Older versions of torchgen have one folder less.
    more = {"headeronly_fm": general} if "headeronly_fm" in signature(gen.gen_headers).parameters else {}
    with ExitStack() as stack:
        if not of_operators:
            stack.enter_context(patch.object(gen, "get_native_function_declarations", lambda **_: []))
        gen.gen_headers(
            **selection.arguments,
            **more,
            valid_tags=valid_tags,
            selector=SelectiveBuilder.get_nop_selector(),
            core_fm=manager("core"),
            cpu_fm=general,
            device_fms={"cuda": general},
            ops_fm=manager("ops"),
            dispatch_keys=HEADER_KEYS,
        )


def gen_source_files(
    selection: Selection,
    manager: FileManager,
    vectorized: FileManager | None = None,
    *,
    selector: SelectiveBuilder | None = None,
    keys: Sequence[DispatchKey] = (),
) -> None:
    """Run torchgen's ``gen_source_files`` (torchgen/gen.py). The file managers select the files.

    ``vectorized`` receives the files that are compiled once for each CPU capability.
    """
    gen.gen_source_files(
        **selection.arguments,
        view_groups=selection.view_groups,
        selector=selector or SelectiveBuilder.get_nop_selector(),
        aoti_fm=manager,
        core_fm=manager,
        cpu_vec_fm=vectorized or manager,
        cpu_fm=manager,
        device_fms={"cuda": manager},
        dispatch_keys=keys,
        force_schema_registration=False,
        skip_dispatcher_op_registration=False,
        update_aoti_c_shim=False,
        aoti_backends=set(),
        extend_aoti_c_shim=False,
    )


@contextmanager
def autograd_writes_with(manager: Callable[..., FileManager]) -> Iterator[None]:
    """Make the generators of ``torchgen.packaged.autograd`` use ``manager``. They create a FileManager themselves."""
    generators = (gen_autograd_functions, gen_inplace_or_view_type, gen_trace_type)
    with ExitStack() as stack:
        for module in (*generators, gen_variable_factories, gen_variable_type, gen_view_funcs):
            stack.enter_context(patch.object(module, "FileManager", manager))
        yield


def gen_factories(functions: Sequence[NativeFunction], out: Path, templates: Path) -> None:
    """Run torchgen's ``gen_variable_factories`` on ``functions``; it would parse the YAML again."""
    parsed = SimpleNamespace(native_functions=functions)
    with patch.object(gen_variable_factories, "parse_native_yaml", lambda *_: parsed):
        gen_variable_factories.gen_variable_factories(str(out), "", "", str(templates))


def view_meta_bindings(groups: Iterable[NativeFunctionsViewGroup]) -> list[str]:
    """Return the bindings of how functionalization replays views; none before 2.9, where that is only registered."""
    bind = getattr(gen_functionalization_type, "gen_functionalization_view_meta_classes_binding", None)
    if bind is None:
        return []
    module = '[[maybe_unused]] auto functionalization = py::module_(module.attr("_functionalization"));'
    nop = SelectiveBuilder.get_nop_selector()
    return [module, *(text for group in groups for text in bind(nop, group))]


# torchgen's lists of operators' names, which upstream edits by hand. For native folders they are derived from the YAML:
# a graft extends them in the generating process; a source tree gets texts appended to torchgen's files.
_LISTS: tuple[Any, ...] = (
    FUNCTIONAL_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT,
    VIEW_FUNCTIONS,
    ALL_VIEW_FUNCTIONS,
    RETURNS_VIEWS_OF_INPUT,
    GRADIENT_IMPLEMENTED_FOR_COMPLEX,
)


@contextmanager
def extended_lists(functions: Sequence[Fields], derivatives: Sequence[Fields]) -> Iterator[None]:
    """Extend torchgen's lists with the new operators while the body runs."""
    before = [copy(each) for each in _LISTS]
    missing_names(functions, derivatives).extend()
    try:
        yield
    finally:
        for each, content in zip(_LISTS, before, strict=True):
            each.clear()
            each.extend(content) if isinstance(each, list) else each.update(content)


@dataclass(frozen=True)
class Lists:
    """The missing entries of the lists.

    Args:
        without_out: operators that return no tensor, and so have no out= variant.
        views: for each operator that returns a view, the argument that is viewed.
        for_complex: operators with correct gradients for complex tensors. In upstream's list these were verified with
            complex inputs. Here the formula declares it, and gradcheck verifies it with complex inputs.
    """

    without_out: tuple[str, ...]
    views: dict[str, str]
    for_complex: tuple[str, ...]

    def extend(self) -> None:
        """Add the entries to torchgen's lists, in this process."""
        FUNCTIONAL_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT.extend(self.without_out)
        for views in (VIEW_FUNCTIONS, ALL_VIEW_FUNCTIONS, RETURNS_VIEWS_OF_INPUT):
            views.update(self.views)
        GRADIENT_IMPLEMENTED_FOR_COMPLEX.update(self.for_complex)

    def texts(self) -> dict[str, str]:
        """Return the text to append to each of torchgen's files, so that every process has the entries."""
        found = {}
        if self.without_out:
            names = "".join(f'    "{name}",\n' for name in self.without_out)
            text = f"FUNCTIONAL_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT.extend([\n{names}])\n"
            found["torchgen/native_function_generation.py"] = text
        if self.views:
            names = "".join(f'    "{name}": "{viewed}",\n' for name, viewed in self.views.items())
            found["torchgen/packaged/autograd/gen_inplace_or_view_type.py"] = (
                f"_ADDED_VIEWS = {{\n{names}}}\n"
                "for _views in (VIEW_FUNCTIONS, ALL_VIEW_FUNCTIONS, RETURNS_VIEWS_OF_INPUT):\n"
                "    _views.update(_ADDED_VIEWS)\n"
            )
        if self.for_complex:
            names = "".join(f'    "{name}",\n' for name in self.for_complex)
            text = f"GRADIENT_IMPLEMENTED_FOR_COMPLEX.update([\n{names}])\n"
            found["torchgen/packaged/autograd/gen_variable_type.py"] = text
        return found


def missing_names(functions: Sequence[Fields], derivatives: Sequence[Fields]) -> Lists:
    """Derive the missing entries of the lists from new entries of native_functions.yaml and derivatives.yaml."""
    without_out: list[str] = []
    views: dict[str, str] = {}
    for entry in functions:
        text = str(entry.get("func", "")).partition("::")
        try:
            schema = FunctionSchema.parse(text[2] or text[0])
        except Exception:
            continue
        has_tensor = any(r.type.is_tensor_like() for r in schema.returns)
        if not has_tensor and str(schema.name) not in FUNCTIONAL_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT:
            without_out.append(str(schema.name))
        viewed, name = viewed_argument(schema), str(schema.name.name)
        if viewed and not is_composite_implicit(entry) and name not in VIEW_FUNCTIONS:
            views.setdefault(name, viewed)
    names = {str(entry.get("name", "")).split("(")[0].split(".")[0] for entry in derivatives}
    # torchgen derives the formula of the copy that functionalization uses in place of a view.
    names |= {f"{name}_copy" for name in names if name in views}
    return Lists(tuple(without_out), views, tuple(sorted(names - GRADIENT_IMPLEMENTED_FOR_COMPLEX)))


def is_composite_implicit(entry: Fields) -> bool:
    """Return whether an entry is composed of other operators. A key of ``dispatch`` may name several dispatch keys."""
    names = [name.strip() for keys in entry.get("dispatch") or {} for name in str(keys).split(",")]
    return not names or "CompositeImplicitAutograd" in names


def viewed_argument(schema: FunctionSchema) -> str | None:
    """Return the argument that the result is a view of, from the alias annotations: ``Tensor(a) self -> Tensor(a)``."""
    for result in schema.returns:
        annotation = result.annotation
        if annotation is None or annotation.is_write:
            continue
        for argument in schema.arguments.flat_all:
            theirs = argument.annotation
            if theirs is not None and not theirs.is_write and set(theirs.alias_set) & set(annotation.alias_set):
                return argument.name
    return None
