"""Export the names of torchgen that Graft uses. No other module imports torchgen, which comes with the base.

This module also holds everything that depends on torchgen's version: patches, code that runs in its modules, and
patterns for its source. For a new release of PyTorch, compare this file and ``appended/torchgen``.
"""

from __future__ import annotations

import hashlib
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeAlias, TypeVar
from unittest.mock import patch

from torchgen import gen, gen_functionalization_type, local, native_function_generation
from torchgen.api import cpp, meta, structured
from torchgen.api.autograd import (
    Derivative,
    DifferentiabilityInfo,
    ForwardDerivative,
    NativeFunctionWithDifferentiabilityInfo,
    match_differentiability_info,
)
from torchgen.api.python import (
    PythonSignatureGroup,
    PythonSignatureNativeFunctionPair,
    dispatch_lambda_exprs,
    dispatch_lambda_return_str,
    has_tensor_options,
    returns_structseq_pyi,
    signature,
)
from torchgen.api.types import Binding, CppSignatureGroup, NativeSignature
from torchgen.context import native_function_manager
from torchgen.dest import compute_native_function_declaration
from torchgen.gen import (
    ComputeRedispatchFunction,
    ComputeTensorMethod,
    error_check_native_functions,
    get_grouped_by_view_native_functions,
    get_grouped_native_functions,
    parse_native_yaml,
    parse_tags_yaml,
)
from torchgen.gen_functionalization_type import MUTABLE_OPS_NOT_USING_FUNCTIONALIZATION, modifies_arguments
from torchgen.gen_vmap_plumbing import ComputeBatchRulePlumbing
from torchgen.model import (
    Argument,
    BackendIndex,
    BackendMetadata,
    BaseOperatorName,
    BaseTy,
    BaseType,
    DispatchKey,
    FunctionSchema,
    ListType,
    Location,
    NativeFunction,
    NativeFunctionsGroup,
    NativeFunctionsViewGroup,
    OperatorName,
    OptionalType,
    Return,
    SchemaKind,
    Type,
    Variant,
    dispatch_keys,
)
from torchgen.native_function_generation import (
    FUNCTIONAL_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT,
    add_generated_native_functions,
    functional_to_out_signature,
    generate_function,
)
from torchgen.packaged.autograd import gen_python_functions, gen_variable_factories
from torchgen.packaged.autograd.gen_annotated_fn_args import gen_annotated_args
from torchgen.packaged.autograd.gen_autograd_functions import (
    DERIVATIVE_SINGLE_FOREACH,
    FUNCTION_DEFINITION,
    WILL_RELEASE_VARIABLES,
    gen_autograd_functions_lib,
    gen_autograd_functions_python,
)
from torchgen.packaged.autograd.gen_inplace_or_view_type import VIEW_FUNCTIONS, gen_inplace_or_view_type, use_derived
from torchgen.packaged.autograd.gen_python_functions import (
    SKIP_PYTHON_BINDINGS,
    create_python_bindings,
    create_python_return_type_bindings,
    create_python_return_type_bindings_header,
    group_overloads,
    load_signatures,
    should_generate_py_binding,
)
from torchgen.packaged.autograd.gen_trace_type import MANUAL_AUTOGRAD, gen_trace_type, should_trace
from torchgen.packaged.autograd.gen_variable_type import (
    GRADIENT_IMPLEMENTED_FOR_COMPLEX,
    gen_variable_type,
    gen_variable_type_func,
)
from torchgen.packaged.autograd.gen_view_funcs import gen_view_funcs
from torchgen.packaged.autograd.load_derivatives import (
    add_view_copy_derivatives,
    create_differentiability_info,
    load_derivatives,
)
from torchgen.selective_build.selector import SelectiveBuilder
from torchgen.utils import FileManager, Target, context

from .output import Output

T = TypeVar("T")
Kernels: TypeAlias = dict[DispatchKey, dict[OperatorName, BackendMetadata]]
Infos: TypeAlias = dict[FunctionSchema, dict[str, DifferentiabilityInfo]]
Env = Callable[[], str | dict[str, Any]]
Wanted = Callable[[str], bool]

# Devices whose library no official wheel for Linux contains. Registrations for them have nothing to call.
ABSENT_DEVICES = ("MPS", "XPU", "HPU", "MTIA")
# The keys of these devices that torchgen's command line leaves out (torchgen/gen.py, main): the base's headers do not
# declare kernels for them.
IGNORED_KEYS = {key for key in dispatch_keys if str(key) in (*ABSENT_DEVICES, "SparseMPS", "SparseCsrMPS")}
# The dispatch keys of CUDA, dense and other: SparseCsrCUDA is one of them.
CUDA_KEYS = [key for key in dispatch_keys if str(key).endswith("CUDA")]
# The dispatch keys of neither CUDA nor absent devices. Registrations for CUDA are written separately.
KEYS_BUT_CUDA = [key for key in dispatch_keys if not str(key).endswith((*ABSENT_DEVICES, "CUDA"))]
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

# The variables of the function that torchgen puts a derivative formula into.
FORMULA_VARIABLES = frozenset(
    re.findall(r"\w+", FUNCTION_DEFINITION.pattern.partition("inline")[0] + WILL_RELEASE_VARIABLES.pattern)
) | {"grad", "grad_input_mask"}
# The variables of its loop over the tensors of a list.
LOOP_VARIABLES = frozenset(re.findall(r"\w+", DERIVATIVE_SINGLE_FOREACH.pattern))

# Templates of our own.
TEMPLATES = Path(__file__).resolve().parent / "templates"

# Texts to append to torchgen's files. TYPES give C++ types to written optionals, and RESULTS is about the results of
# Python functions.
APPENDED = Path(__file__).resolve().parent / "appended"
TYPES = ("torchgen/api/cpp.py", "torchgen/api/native.py")
RESULTS = "torchgen/api/python.py"

# The modules of torchgen.packaged.autograd that create a FileManager themselves.
_AUTOGRAD_GENERATORS = (
    *("gen_autograd_functions", "gen_inplace_or_view_type", "gen_trace_type"),
    *("gen_variable_factories", "gen_variable_type", "gen_view_funcs"),
)

# Keys of a template environment that are always there, even for a file without content.
_ALWAYS_THERE = {"generated_comment", "ops_headers", "op_headers", "operator_headers", "shard_id", "file_stem"}


def entry_keys() -> frozenset[str]:
    """Return the valid keys of an entry of native_functions.yaml. torchgen has no list of them: its code removes them
    from an entry one by one.
    """
    found = re.findall(r"""e\.pop\(\s*["'](\w+)["']""", inspect.getsource(NativeFunction.from_yaml))
    return frozenset(found) - {"__line__"}  # torchgen's loader adds it


def backend_indices(kernels: Kernels) -> dict[DispatchKey, BackendIndex]:
    """Return torchgen's index of the kernels for each dispatch key, also for keys without kernels
    (parse_native_yaml_struct in torchgen/gen.py).
    """
    found: dict[DispatchKey, BackendIndex] = gen.parse_native_yaml_struct([], set()).backend_indices
    for key, index in kernels.items():
        is_of_cuda = gen.is_cuda_dispatch_key(key)
        found[key] = BackendIndex(key, use_out_as_primary=True, external=False, device_guard=is_of_cuda, index=index)
    return found


def is_bound_in(f: NativeFunction, namespace: str) -> bool:
    """Return whether Python has ``f`` in a namespace: ``methods``, ``torch`` or a ``python_module``."""
    name = "variable_method" if namespace == "methods" else f"{namespace}_function"
    return bool(getattr(gen_python_functions, f"is_py_{name}")(f))


def operator_slots(templates: str, names: Iterable[str]) -> list[str]:
    """Return the entries, such as ``__add__``, that torchgen's template binds by hand to the functions ``names``."""
    text = Path(templates, "python_variable_methods.cpp").read_text(encoding="utf-8")
    entry = re.compile(r"^\s*(\{\"__\w+__\", .*TypeError_to_NotImplemented_<THPVariable_(\w+)>\).*\}),\s*$", re.M)
    return [f"{match[1]}," for match in entry.finditer(text) if match[2] in names]


def with_nodes_in(namespace: str, header: str) -> str:
    """Return the text of a generated Functions.h with its autograd nodes in an inline namespace."""
    head, nodes, end = _nodes_of(header)
    return f"{head}inline namespace {namespace} {{\n{''.join(nodes)}\n}} // namespace {namespace}\n{end}"


def with_nodes_by_content(header: str, nodes: Collection[str], condition: str) -> str:
    """Return the text of a generated Functions.h with each of ``nodes`` in an inline namespace that is named after its
    definition, where the macro ``condition`` is defined.
    """
    head, definitions, end = _nodes_of(header)
    return head + "".join(_by_content(each, nodes, condition) for each in definitions) + end


def _by_content(definition: str, nodes: Collection[str], condition: str) -> str:
    name = definition.partition("\nstruct ")[2].partition(" ")[0]
    if name not in nodes:
        return definition
    namespace = f"graft_{hashlib.sha256(definition.encode()).hexdigest()[:12]}"
    opened = f"#ifdef {condition}\ninline namespace {namespace} {{\n#endif\n"
    return f"{opened}{definition}\n#ifdef {condition}\n}} // namespace {namespace}\n#endif\n"


def _nodes_of(header: str) -> tuple[str, list[str], str]:
    """Return the text before the autograd nodes of a generated Functions.h, each definition, and the text after."""
    head, *nodes = re.split(r"^(?=#ifdef _WIN32\nstruct )", header, flags=re.M)
    if not nodes:
        return head, [], ""
    last, end, rest = nodes[-1].rpartition("\n}")
    return head, [*nodes[:-1], last], end + rest


def extend_modules(texts: Mapping[str, str]) -> None:
    """Run each text as if it stood at the end of torchgen's file of that name."""
    for file, text in texts.items():
        exec(text, vars(import_module(file.removesuffix(".py").replace("/", "."))))


# All users of torchgen get these C++ types: builds, checks, and skeletons of new operators.
extend_modules({file: (APPENDED / file).read_text(encoding="utf-8") for file in (*TYPES, RESULTS)})


def accepted_without_out(names: Iterable[str]) -> AbstractContextManager[Any]:
    """Let torchgen's grouping accept these operators, which return no tensor, while the body runs."""
    name = "FUNCTIONAL_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT"
    listed = FUNCTIONAL_OPS_THAT_CANNOT_GET_AN_OUT_VARIANT
    return patch.object(native_function_generation, name, [*listed, *names])


class SelectingFileManager(FileManager):
    """Writes to ``out`` only files that ``wanted`` accepts, one file in place of torchgen's shards, and no file without
    content. Nothing is computed for other files. Our own templates replace torchgen's.

    ``keep_line`` selects entries of a sharded list. ``shard`` is part of the functions' names in the file that replaces
    torchgen's shards.
    """

    def __init__(
        self,
        install_dir: str | Path,
        template_dir: str | Path,
        dry_run: bool = False,
        *,
        out: Output,
        wanted: Wanted = lambda _: True,
        keep_line: Callable[[str], bool] = lambda _: True,
        shard: str = "graft",
    ) -> None:
        super().__init__(install_dir, template_dir, dry_run)
        self._wanted = wanted
        self._out = out
        self._keep_line = keep_line
        self._shard = shard

    def substitute_with_template(self, template_fn: str | Path, env_callable: Env) -> str:
        def named_as_upstream() -> str | dict[str, Any]:
            env = env_callable()
            if isinstance(env, dict):
                env.setdefault("generated_comment", f"@generated by torchgen/gen.py from {template_fn}")
                # torchgen before 2.7 writes them with the definitions, later ones with the file.
                env.setdefault("dispatch_helpers", [])
            return env

        is_own = (TEMPLATES / template_fn).is_file()
        with patch.object(self, "template_dir", TEMPLATES if is_own else self.template_dir):
            return super().substitute_with_template(template_fn, named_as_upstream)

    def write_with_template(self, filename: str | Path, template_fn: str | Path, env_callable: Env) -> None:
        if not self._wanted(str(filename)):
            return
        env = env_callable()
        if isinstance(env, dict):
            if not has_content(env):
                return
            # torchgen before 2.7 has no such attribute.
            env.setdefault("file_stem", Path(filename).stem.lower())
        super().write_with_template(filename, template_fn, lambda: env)

    def write_sharded(self, filename: str | Path, items: Iterable[T], **options: Any) -> None:
        # torchgen before 2.9 has only this function for shards.
        self.write_sharded_with_template(filename, filename, items, **options)

    def write_sharded_with_template(
        self,
        filename: str | Path,
        template_fn: str | Path,
        items: Iterable[T],
        *,
        env_callable: Callable[[T], dict[str, list[str]]],
        base_env: dict[str, Any] | None = None,
        sharded_keys: set[str],
        **_: Any,
    ) -> None:
        if not self._wanted(str(filename)):
            return
        stem = Path(filename).stem
        env: dict[str, Any] = {**(base_env or {}), "shard_id": f"_{self._shard}", "file_stem": stem.lower()}
        own = {key: list(env.get(key, [])) for key in sharded_keys}
        for item in items:
            for key, value in env_callable(item).items():
                own[key] += filter(self._keep_line, value)
        if has_content(own):
            super().write_with_template(filename, template_fn, lambda: {**env, **own})

    def _write_if_changed(self, filename: str | Path, contents: str) -> None:
        self._out.write(filename, contents)

    def template_dir_for_comments(self) -> str:
        # Upstream's build runs in the source tree.
        return "../tools/autograd/templates"


def write_from_template(out: Output, name: str, env: Mapping[str, Any]) -> None:
    """Write a file with our template of the same name."""
    path = Path(name)
    SelectingFileManager(path.parent, TEMPLATES, out=out).write(path.name, lambda: dict(env))


def has_content(env: dict[str, Any]) -> bool:
    """Return whether a template environment contains more than the headers to include."""
    return any(value for key, value in env.items() if key not in _ALWAYS_THERE and key.strip())


def template_env(generate: Callable[..., object], *arguments: object) -> dict[str, Any]:
    """Run a generator of one file. Return the environment of its template; the file is not written."""
    env: dict[str, Any] = {}
    manager = SimpleNamespace(
        write_with_template=lambda _name, _template, env_callable: env.update(env_callable()),
        template_dir_for_comments=str,
    )
    generate(manager, *arguments)
    return env


class Arguments(NamedTuple):
    """The arguments of torchgen's generators for ATen, for some operators.

    Args:
        templates: the folder of its templates.
        functions: the operators.
        groups: their groups, which may contain others.
        view_groups: their view groups (view, view_copy, view_inplace), likewise.
        indices: the kernels by dispatch key.
        names: the operators' names, with namespace and overload.
    """

    templates: Path
    functions: Sequence[NativeFunction]
    groups: Sequence[NativeFunction | NativeFunctionsGroup]
    view_groups: Sequence[NativeFunctionsViewGroup]
    indices: Mapping[DispatchKey, BackendIndex]
    names: Iterable[str]

    @property
    def selector(self) -> SelectiveBuilder:
        """torchgen's selector, which generates code for these operators only."""
        chosen = {"is_root_operator": True, "is_used_for_training": True, "include_all_overloads": False}
        return SelectiveBuilder.from_yaml_dict({"operators": {name: dict(chosen) for name in sorted(self.names)}})

    @property
    def common(self) -> dict[str, Any]:
        """The arguments of both ``gen_headers`` and ``gen_source_files``."""
        return {
            "native_functions": self.functions,
            "grouped_native_functions": self.groups,
            "structured_native_functions": [g for g in self.groups if isinstance(g, NativeFunctionsGroup)],
            "backend_indices": self.indices,
            "static_dispatch_idx": [],
            "functions_keys": FUNCTIONS_KEYS,
            "rocm": False,
            "per_operator_headers": True,
        }


def gen_headers(
    given: Arguments,
    out: Output,
    *,
    of_operators: Wanted | None = None,
    others: Wanted | None = None,
    include: str = "torch/include",
) -> None:
    """Run torchgen's ``gen_headers`` (torchgen/gen.py), for headers in the folder ``ATen`` below ``include``.

    ``of_operators`` selects the files in ``ops``. Without it, none of them are computed, which would take longest.
    ``others`` selects the other files.
    """

    def manager(folder: str, wanted: Wanted | None) -> FileManager:
        target = Path(include, "ATen", folder)
        return SelectingFileManager(target, given.templates, out=out, wanted=wanted or (lambda _: False))

    general = manager("", others)
    # The folder of enum_tag.h, which is not generated here. Older versions of torchgen do not take it.
    more = {"headeronly_fm": general} if "headeronly_fm" in inspect.signature(gen.gen_headers).parameters else {}
    declare = gen.get_native_function_declarations if of_operators else lambda **_: []
    with patch.object(gen, "get_native_function_declarations", declare):
        gen.gen_headers(
            **given.common,
            **more,
            valid_tags=set(),  # for enum_tag.h
            selector=SelectiveBuilder.get_nop_selector(),
            core_fm=manager("core", others),
            cpu_fm=general,
            device_fms={"cuda": general},
            ops_fm=manager("ops", of_operators),
            dispatch_keys=[key for key in dispatch_keys if key not in IGNORED_KEYS],
        )


def gen_source_files(
    given: Arguments, manager: FileManager, vectorized: FileManager | None = None, *, keys: Sequence[DispatchKey] = ()
) -> None:
    """Run torchgen's ``gen_source_files`` (torchgen/gen.py). The file managers select the files.

    ``vectorized`` receives the files that are compiled once for each CPU capability. With dispatch keys, only the
    operators themselves are registered.
    """
    gen.gen_source_files(
        **given.common,
        view_groups=given.view_groups,
        selector=given.selector if keys else SelectiveBuilder.get_nop_selector(),
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
def autograd_writes(out: Output, wanted: str, shard: str = "graft") -> Iterator[None]:
    """Make the generators of ``torchgen.packaged.autograd``, which create a FileManager themselves, write to ``out``
    the files whose name ends with ``wanted``.
    """
    manager = partial(SelectingFileManager, out=out, wanted=lambda name: name.endswith(wanted), shard=shard)
    with ExitStack() as stack:
        for name in _AUTOGRAD_GENERATORS:
            module = import_module(f"torchgen.packaged.autograd.{name}")
            stack.enter_context(patch.object(module, "FileManager", manager))
        yield


def gen_factories(functions: Sequence[NativeFunction], out: str, templates: str) -> None:
    """Run torchgen's ``gen_variable_factories`` on ``functions``, without parsing the YAML again."""
    parsed = SimpleNamespace(native_functions=functions)
    with patch.object(gen_variable_factories, "parse_native_yaml", lambda *_: parsed):
        gen_variable_factories.gen_variable_factories(out, "", "", templates)


def view_meta_env(groups: Iterable[NativeFunctionsViewGroup]) -> dict[str, list[str]]:
    """Return the bindings for replaying views, which saved compiled graphs need; empty before PyTorch 2.9."""
    bind = getattr(gen_functionalization_type, "gen_functionalization_view_meta_classes_binding", None)
    if bind is None:
        return {"view_meta_headers": [], "view_meta_bindings": []}
    texts = [text for group in groups for text in bind(SelectiveBuilder.get_nop_selector(), group)]
    module = '[[maybe_unused]] auto functionalization = py::module_(module.attr("_functionalization"));'
    headers = ["#include <ATen/ViewMetaClasses.h>", "#include <torch/csrc/functionalization/Module.h>"]
    return {"view_meta_headers": headers if texts else [], "view_meta_bindings": [module, *texts]}
