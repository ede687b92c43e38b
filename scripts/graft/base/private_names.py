"""The private names of PyTorch that a running process relies on: ``graft.load`` checks that each exists.

PyTorch may rename them in any release. Three other places rely on private names, and list them themselves: the texts in
``compose/appended`` (``compose.appending.require_names``), ``codegen/torchgen.py``, which imports them, and
``compile/templates/loads.cpp``, whose members are below.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from ..core.console import WARNING, say
from ..core.errors import UsageError
from ..core.files import write_atomically
from .base import Base

# The kinds of names. CACHE: a function with a cache, or a class that empties one. PYTHON: a name that is called, read
# or replaced. BINDING: a name in torch._C, which has no source. MEMBER: a member of a C++ class.
CACHE, PYTHON, BINDING, MEMBER = "cache", "name", "binding", "member"

# The oldest release with a wheel that a pin names.
_FIRST = "2.11"


@dataclass(frozen=True)
class Private:
    """Names of one file.

    Args:
        file: relative to ``torch``: a Python file or a header. For ``BINDING`` the module.
        kind: ``CACHE``, ``PYTHON``, ``BINDING`` or ``MEMBER``.
        purpose: what they are for.
        text: the names, separated by spaces. A dot separates a class from its member, a bar an old name from its new
            one.
        since: the first release that has them. Older releases do not need them.
        is_for_speed: whether PyTorch is only slower without them. Without other names, results could be wrong.
    """

    file: str
    kind: str
    purpose: str
    text: str
    since: str = _FIRST
    is_for_speed: bool = False

    @property
    def consequence(self) -> str:
        """What follows if a torch lacks one of them, for messages."""
        return "compiled code may be slower" if self.is_for_speed else "graft.load refuses this release"

    @property
    def names(self) -> list[str]:
        """The names."""
        return self.text.split()

    @property
    def module(self) -> str:
        """The Python module of the file."""
        return f"torch.{self.file.removesuffix('.py').removesuffix('/__init__').replace('/', '.')}"


def _cache(file: str, text: str, since: str = _FIRST) -> Private:
    return Private(file, CACHE, "remembers operators; emptied", text, since)


PRIVATE = (
    _cache("_dynamo/trace_rules.py", "get_torch_obj_rule_map get_tensor_method get_legacy_mod_inlinelist"),
    _cache("_dynamo/trace_rules.py", "get_mod_inlinelist get_mod_skiplist"),
    _cache("_dynamo/variables/torch.py", "tracing_state_functions get_overridable_functions"),
    _cache("_dynamo/variables/torch.py", "TorchInGraphFunctionVariable._get_handlers"),
    _cache("_dynamo/variables/builtin.py", "BuiltinVariable._constant_fold_functions"),
    _cache("_dynamo/variables/builtin.py", "BuiltinVariable._fx_graph_functions"),
    _cache("_dynamo/variables/functions.py", "PolyfilledFunctionVariable._get_polyfill_handlers"),
    _cache("_export/utils.py", "_collect_all_valid_cia_ops_for_aten_namespace"),
    Private("_functorch/partitioners.py", CACHE, "what is cheap to compute again", "pointwise_ops", is_for_speed=True),
    _cache("_functorch/_aot_autograd/runtime_wrappers.py", "_is_fsdp_all_gather_copy_in"),
    _cache("_inductor/codecache.py", "_default_device_constructor_targets", since="2.13"),
    _cache("_inductor/codecache.py", "_default_device_constructor_overload_packets", since="2.13"),
    _cache("_inductor/decomposition.py", "fast_random_decomps"),
    _cache("_prims/context.py", "torch_to_refs_map all_prims"),
    _cache("_subclasses/fake_impls.py", "_is_tensor_constructor get_fast_op_impls"),
    _cache("_subclasses/fake_tensor.py", "FakeTensorMode get_schema_info torch_decomp_decompositions"),
    _cache("_subclasses/functional_tensor.py", "_can_decompose_fast", since="2.12"),
    _cache("distributed/tensor/_redistribute.py", "_gen_transform_infos"),
    _cache("distributed/tensor/_sharding_prop.py", "ShardingPropagator._propagate_tensor_meta_cached"),
    _cache("overrides.py", "get_ignored_functions get_default_nowrap_functions get_testing_overrides"),
    _cache("overrides.py", "_get_overridable_functions _get_tensor_methods"),
    _cache("utils/_device.py", "_device_constructors"),
    _cache("utils/_python_dispatch.py", "get_alias_info"),
    Private("fx/operator_schemas.py", PYTHON, "remembers schemas; emptied", "_SCHEMA_TO_SIGNATURE_CACHE"),
    Private("distributed/tensor/_api.py", PYTHON, "has the caches of shardings", "DTensor._op_dispatcher"),
    Private("_C", BINDING, "DTensor's cache in C++; emptied", "_clear_DTensor_sharding_propagator_cache"),
    Private("_decomp/__init__.py", PYTHON, "Inductor copies them", "core_aten_decompositions decomposition_table"),
    Private("_inductor/decomposition.py", PYTHON, "the copies; renewed", "decompositions inductor_decompositions"),
    Private("_inductor/lowering.py", PYTHON, "what calls kernels; taken out", "lowerings _maybe_layout_constraints"),
    Private("_inductor/lowering.py", PYTHON, "likewise", "fallbacks needs_realized_inputs"),
    Private("_inductor/lowering.py", PYTHON, "marks what calls a kernel", "fallback_handler._is_fallback_handler"),
    Private("_inductor/codecache.py", PYTHON, "part of keys on disk; extended by what is loaded", "torch_key"),
    Private(
        *("_dynamo/output_graph.py", PYTHON, "wrapped, to record which code uses which operators"),
        "OutputGraph.call_user_compiler|OutputGraph._call_user_compiler",
    ),
    Private("fx/experimental/proxy_tensor.py", PYTHON, "wrapped, to record what graphs are made of", "proxy_call"),
    Private("fx/experimental/proxy_tensor.py", PYTHON, "says whether a trace runs", "get_proxy_mode"),
    Private(
        *("_functorch/_aot_autograd/autograd_cache.py", PYTHON, "wrapped, to save the operators of a graph with it"),
        "AOTAutogradCache._lookup AOTAutogradCache.save",
    ),
    Private("_dynamo/eval_frame.py", PYTHON, "lets code be compiled again", "reset_code"),
    Private("_dynamo/convert_frame.py", PYTHON, "the code that Dynamo has seen", "input_codes compile_lock"),
    Private("utils/checkpoint.py", PYTHON, "wrapped, to refuse an edited formula", "_CheckpointFrame.__init__"),
    Private("utils/_python_dispatch.py", PYTHON, "keeps modes from seeing a load", "_disable_current_modes"),
    Private("_ops.py", PYTHON, "all operators", "get_cached_ops _OpNamespace _higher_order_ops"),
    Private("_ops.py", PYTHON, "what a packet has", "OpOverloadPacket._op OpOverloadPacket._qualified_op_name"),
    Private("_ops.py", PYTHON, "its overloads", "OpOverloadPacket._dir OpOverloadPacket._overload_names"),
    Private("_ops.py", PYTHON, "the names of a namespace", "_OpNamespace._dir"),
    Private("_ops.py", PYTHON, "kernels in Python", "OperatorBase.py_kernels OperatorBase.python_key_table"),
    Private("_ops.py", PYTHON, "likewise", "OperatorBase.functorch_table"),
    Private("_ops.py", PYTHON, "what an overload calls", "OpOverload._op OpOverload._op_dk OpOverload._schema"),
    Private("_ops.py", PYTHON, "remembers kernels; emptied", "OperatorBase._dispatch_cache"),
    Private("jit/_builtins.py", PYTHON, "TorchScript finds functions by it", "_register_builtin"),
    Private("library.py", PYTHON, "what texts register; taken back", "_defs Library._op_defs Library._op_impls"),
    Private("library.py", PYTHON, "likewise", "Library._destroy"),
    Private(
        "library.py", PYTHON, "wrapped, to find it", "Library._register_fake Library._register_torch_dispatch_rule"
    ),
    Private("library.py", PYTHON, "likewise", "Library._impl_with_aoti_compile Library._register_effectful_op"),
    Private("return_types.py", PYTHON, "results with names; added", "all_return_types pytree_register_structseq"),
    Private("_C", BINDING, "the definition of an operator", "_get_operation_overload _get_schema _jit_get_operation"),
    Private("_C", BINDING, "the names of all operators", "_dispatch_get_all_op_names"),
    Private("_C", BINDING, "where bindings are added", "_VariableFunctions _return_types _add_docstr"),
    Private("_C", BINDING, "says whether a transform runs", "maybe_current_level"),
    Private(
        *("include/ATen/core/dispatch/Dispatcher.h", MEMBER, "the dispatcher's operators; exchanged"),
        "operatorLookupTable_ operatorDef_",
    ),
    Private("include/torch/library.h", MEMBER, "a kernel that a source registers, and its key", "func_ dispatch_key_"),
)


def caches(version: str) -> dict[str, list[str]]:
    """Return the caches to clear in a release, by module."""
    found: dict[str, list[str]] = {}
    for each in PRIVATE:
        if each.kind == CACHE and Version(version) >= Version(each.since):
            found.setdefault(each.module, []).extend(each.names)
    return found


def lacking(torch: Path, version: str, private: Sequence[Private] = PRIVATE) -> Iterator[tuple[Private, str]]:
    """Yield the names that a torch lacks, each after its ``Private``.

    Args:
        torch: the folder ``torch`` of the release, which is read and not imported.
        version: its version.
    """
    release = Version(version)
    for each in private:
        if release >= Version(each.since):
            yield from ((each, name) for name in each.names if not _has(torch, each, name))


def _has(torch: Path, private: Private, names: str) -> bool:
    """Return whether a file has one of the ``names``, which are separated by bars."""
    if private.kind == BINDING:
        return any(f"{name}\0".encode() in _library(torch) for name in names.split("|"))
    path = torch / private.file
    if not path.is_file():
        return False
    if private.kind == MEMBER:
        return bool(re.search(rf"\b{names}\b", path.read_text(encoding="utf-8")))
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = (_found(tree, name.split(".")) for name in names.split("|"))
    return any(each is not None and (private.kind != CACHE or _has_cache(each)) for each in found)


def require_private_names(base: Base, note: Path) -> None:
    """Check that a base has all names that a running process relies on; warn about missing ones that only save time.

    Args:
        base: the base.
        note: a file next to it that records a successful check.

    Raises:
        UsageError: lists the names without which results could be wrong.
    """
    stamp = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()
    if note.is_file() and note.read_text(encoding="utf-8") == stamp:
        return
    faults = []
    for private, line in missing_in(base):
        if private.is_for_speed:
            say(f"{line}; {private.consequence}", WARNING)
        else:
            faults.append(line)
    if faults:
        raise UsageError(
            "\n".join(faults),
            cause="this release differs from those that Graft knows, and results could be wrong",
            todo="use a release that patches/ names, or report this as an issue of Graft",
        )
    write_atomically(note, stamp)


def missing_in(base: Base) -> list[tuple[Private, str]]:
    """Return the ``Private`` of each name that a base lacks, with a message about the name."""
    found = lacking(base.tree / "torch", base.version)
    return [(each, f"torch {base.version}: {each.file} has no {name} ({each.purpose})") for each, name in found]


@functools.lru_cache(maxsize=1)
def _library(torch: Path) -> bytes:
    return (torch / "lib/libtorch_python.so").read_bytes()


def _found(scope: ast.AST, path: Sequence[str]) -> ast.AST | None:
    """Return the statement of a module or class that defines the dotted name with the parts ``path``, or None."""
    name, *others = path
    for each in _statements(scope):
        if name in _defined(each):
            return _found(each, others) if others else each
    return None


def _statements(scope: ast.AST) -> Iterator[ast.stmt]:
    """Yield the statements of a module or class, also those under conditions, and those of a class's ``__init__``."""
    for each in ast.iter_child_nodes(scope):
        if isinstance(each, ast.stmt):
            yield each
        if isinstance(each, (ast.If, ast.Try, ast.With, ast.ExceptHandler)):
            yield from _statements(each)
        if (
            isinstance(each, ast.FunctionDef)
            and each.name in ("__init__", "__new__")
            and isinstance(scope, ast.ClassDef)
        ):
            yield from (node for node in ast.walk(each) if isinstance(node, (ast.Assign, ast.AnnAssign)))


def _defined(statement: ast.stmt) -> Iterable[str]:
    """Return the names that a statement defines; of attributes, the last part."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return [statement.name]
    if isinstance(statement, (ast.Import, ast.ImportFrom)):
        return [each.asname or each.name for each in statement.names]
    targets = statement.targets if isinstance(statement, ast.Assign) else [getattr(statement, "target", None)]
    flat = [each for target in targets for each in (target.elts if isinstance(target, ast.Tuple) else [target])]
    return [
        each.id if isinstance(each, ast.Name) else each.attr
        for each in flat
        if isinstance(each, (ast.Name, ast.Attribute))
    ]


def _has_cache(node: ast.AST) -> bool:
    """Return whether a function has a cache, or a class empties one."""
    if isinstance(node, ast.ClassDef):
        return _found(node, ["cache_clear"]) is not None
    return isinstance(node, ast.FunctionDef) and any("cache" in ast.unparse(each) for each in node.decorator_list)
