"""Check entries of native_functions.yaml, alone and as the variants of one operator.

torchgen decides: it parses each entry, groups the variants, generates those named in ``autogen:``, and reports which do
not fit together. What it accepts although a build would fail, or the operator be odd, is checked here.
"""

from __future__ import annotations

import inspect
import keyword
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from torchgen.api import cpp
from torchgen.gen import (
    error_check_native_functions,
    get_grouped_by_view_native_functions,
    get_grouped_native_functions,
)
from torchgen.gen_functionalization_type import MUTABLE_OPS_NOT_USING_FUNCTIONALIZATION, modifies_arguments
from torchgen.model import (
    Argument,
    BackendIndex,
    BaseOperatorName,
    BaseTy,
    BaseType,
    FunctionSchema,
    ListType,
    Location,
    NativeFunction,
    OptionalType,
    SchemaKind,
    Type,
    Variant,
    dispatch_keys,
)
from torchgen.native_function_generation import add_generated_native_functions, generate_function
from torchgen.packaged.autograd.gen_python_functions import SKIP_PYTHON_BINDINGS, should_generate_py_binding

from ..codegen.description import PYTHON_MODULES
from ..codegen.known import Kernels
from ..codegen.operators import groups_accept, parse_replacing
from ..inputs.entries import REPLACE, Entry, Place, kernels_of
from . import Findings, line_of, nearest
from .base import BaseOperators
from .cplusplus import is_keyword
from .writing import REMEDIES_OF_WRITING, is_accepted

# torchgen has no list of valid keys except for its code, which removes them from an entry one by one.
KEYS = frozenset(re.findall(r"""e\.pop\(\s*["'](\w+)["']""", inspect.getsource(NativeFunction.from_yaml))) - {
    "__line__"  # torchgen's loader adds it
}

# torchgen's errors about one word, and the words that it knows instead.
_WORDS: tuple[tuple[str, Iterable[str]], ...] = (
    (r"unrecognized type (.+)", [kind.name for kind in BaseTy]),
    (r"illegal argument '(.+)'", ()),
    (r"unknown dispatch key (\w+)", [str(key) for key in dispatch_keys]),
    (r"illegal variant (\w+)", [variant.name for variant in Variant]),
)

# Remedies for torchgen's errors, by a part of the message.
_REMEDIES = (
    *REMEDIES_OF_WRITING,
    (r"Invalid function schema|not a str: \[", "a schema is `name(arguments) -> returns`"),
    (
        r"illegal argument|unrecognized type",
        "an argument is a type and a name, `int n`; write a space behind each comma",
    ),
    (r"dispatch is not a dict", "write `Key: kernel` below it, one on each line"),
    (r"alias keys?\b|more than one of Composite", "keep one of the Composite keys"),
    (r"manual_kernel_registration", "leave `dispatch` or `manual_kernel_registration` out"),
    (r"structured_delegate pointing to", "add that entry, with `structured: True`, or correct the name"),
    (r"autogen", "write that line, or write the variants out"),
    (r"new operator that aliases its inputs", "add that entry, with the tag `view_copy`"),
    (r"could not find any other variants", "add the functional variant: the same schema without `out`"),
    (r"mutable|Inplace op", "mark each mutated argument with `(a!)`, and return it like in-place and out variants"),
    (r"structured", "put `structured: True` on the out variant, and `structured_delegate: <name>.out` on the others"),
    (r"\bout\b", "write the out arguments after the `*`, each as `Tensor(a!) out`, and return them in that order"),
)

# The name of an operator with its overload. The latter follows a name in C++.
_NAME = re.compile(r"[A-Za-z_]\w*(\.\w+)?", re.ASCII)

_NUMBER = r"-?(\d+(\.\d*)?(e-?\d+)?|inf)"

# The defaults of each type, and an example. The identifiers are those that torchgen can translate to C++.
_DEFAULTS = {
    BaseTy.int: (r"-?\d+|Mean", "3"),
    BaseTy.SymInt: (r"-?\d+", "3"),
    BaseTy.float: (_NUMBER, "0.5"),
    BaseTy.Scalar: (_NUMBER, "1"),
    BaseTy.bool: ("True|False", "False"),
    BaseTy.str: (r"\"([^\"\\]|\\.)*\"|'([^'\\]|\\.)*'", '"text"'),
    BaseTy.ScalarType: ("long", "long"),
    BaseTy.MemoryFormat: ("contiguous_format", "contiguous_format"),
}


@dataclass(frozen=True)
class Function:
    """A valid entry."""

    entry: Entry
    native: NativeFunction
    kernels: Kernels

    @property
    def schema(self) -> FunctionSchema:
        """Its schema."""
        return self.native.func


def check_functions(entries: list[Entry], base: BaseOperators, findings: Findings) -> list[Function]:
    """Check each entry and how they fit together. Return the valid ones."""
    functions = []
    seen: dict[str, Entry] = {}
    for entry in entries:
        function, name = _parse(entry, base, findings), entry.operator
        if name in seen:
            other = line_of(seen[name].file, seen[name].line, entry.file)
            findings.add(entry.value("func"), f"{name} is also defined in {other}", "give it an overload name")
        elif "func" in entry.fields and REPLACE not in entry.fields and name in base.schemas:
            what = f"PyTorch already has {base.schemas[name]}"
            todo = "choose another name, or another overload name; `replace: True` replaces PyTorch's kernels"
            findings.add(entry.value("func"), what, todo)
        if "func" in entry.fields:
            seen.setdefault(name, entry)
        if function:
            functions.append(function)
    added = [function for function in functions if not function.entry.is_replacing]
    by_name = {str(function.schema.name): function for function in reversed(added)}
    for function in added:
        _check_names(function, base, findings)
        _check_arguments(function, findings)
        _check_keys(function, by_name.get(str(function.native.structured_delegate), function), findings)
    _check_groups([entry for entry in entries if not entry.is_replacing], added, base, findings)
    return functions


def root_of(operator: str) -> str:
    """Return the name shared by all variants of an operator, including the copy variant of a view."""
    name = operator.partition(".")[0]
    try:
        return BaseOperatorName.parse(name).base.removesuffix("_copy")
    except Exception:  # not a name: reported elsewhere
        return name


def place_of_argument(name: str, entry: Entry) -> Place:
    """Return the place of the last argument called ``name`` in the schema, or of the schema."""
    places = re.finditer(rf"[(,]\s*([^(),]*? {re.escape(name)})(?=[=,)])", str(entry.fields["func"]))
    return entry.value("func", max((place.start(1) for place in places), default=0))


def _parse(entry: Entry, base: BaseOperators, findings: Findings) -> Function | None:
    unknown = [key for key in entry.fields if key not in KEYS and (key, entry.fields[key]) != (REPLACE, True)]
    for key in unknown:
        todo = "write `replace: True`, or leave it out" if key == REPLACE else nearest(key, {*KEYS, REPLACE})
        findings.add(entry.place(key), f"torchgen does not know the key `{key}`", todo)
    if "func" not in entry.fields:
        todo = "write `- func: name(Tensor self) -> Tensor`"
        findings.add((entry.file, entry.line, 0), "an entry needs the key `func`", todo)
    dispatch = entry.fields.get("dispatch")
    parts = [part.strip() for key in dispatch for part in str(key).split(",")] if isinstance(dispatch, dict) else []
    repeated = {part for part in parts if parts.count(part) > 1}
    for key in repeated:
        findings.add(entry.place("dispatch"), f"duplicate dispatch key `{key}`", "leave one out")
    if unknown or repeated or "func" not in entry.fields:
        return None
    if empty := re.search(r"(\w+)=(?=[,)])", entry.schema):
        place = entry.value("func", entry.written.find(f"{empty[1]}="))
        findings.add(place, f"`{empty[1]}=` has no default", "write a value behind `=`, or leave `=` out")
        return None
    location = Location(str(entry.file), entry.line)
    if entry.is_replacing and not _is_like_the_base_s(entry, base, findings):
        return None
    try:
        if entry.is_replacing:
            native, kernels = parse_replacing(entry, base.fields(entry.operator), base.tags)
        else:
            native, kernels = NativeFunction.from_yaml(dict(entry.fields), location, base.tags, set())
    except Exception as error:  # torchgen raises AssertionError, ValueError or RuntimeError
        what = str(error) or f"torchgen cannot parse this entry ({type(error).__name__})"
        findings.add(_place_in(entry, what), what, _remedy(what, base))
        return None
    if native.namespace != "aten":
        what = f"native operators are in PyTorch's namespace aten, and not in `{native.namespace}`"
        findings.add(entry.value("func"), what, f"write `{native.func}`")
        return None
    if not _NAME.fullmatch(str(native.func.name)):
        what = f"`{native.func.name}` is not a name of C++ and Python"
        findings.add(entry.value("func"), what, "write letters, digits and `_`, or `name.overload`")
        return None
    are_written = [_check_default(argument, entry, findings) for argument in native.func.arguments.flat_all]
    return Function(entry, native, kernels) if all(are_written) else None


def _is_like_the_base_s(entry: Entry, base: BaseOperators, findings: Findings) -> bool:
    """Check that an entry with ``replace`` differs from PyTorch's own in its kernels only."""
    name, wanted = entry.operator, base.schemas.get(entry.operator)
    if wanted is None:
        todo = nearest(name, base.schemas) + ", or leave `replace` out to add an operator"
        findings.add(entry.value("func"), f"PyTorch has no operator {name} to replace", todo)
        return False
    if entry.schema != wanted:
        findings.add(entry.value("func"), f"the schema differs from PyTorch's: {entry.schema}", f"write `{wanted}`")
        return False
    theirs = base.fields(name)
    before = len(findings.errors)
    for key, value in entry.fields.items():
        if key not in ("func", "dispatch", REPLACE) and _plain(value) != _plain(theirs.get(key)):
            what = f"`{key}` differs from PyTorch's entry for {name}, which "
            what += f"says {theirs[key]}" if key in theirs else "has no such key"
            findings.add(entry.place(key), what, "leave it out; `replace` is for kernels, by dispatch key")
    place = entry.place("dispatch" if entry.kernels else "func")
    if (delegate := theirs.get("structured_delegate")) and not entry.kernels:
        what = f"the kernel of {name} is that of {delegate}"
        findings.add(place, what, f"replace {delegate}; {name} follows it")
    elif kernels_of(theirs) and not entry.kernels:
        listed = ", ".join(f"{key}: {kernel}" for key, kernel in kernels_of(theirs).items())
        what = f"it names no kernel, and PyTorch's {name} has several"
        findings.add(place, what, f"write `dispatch:` with those that the folder replaces, of {listed}")
    return len(findings.errors) == before


def _plain(value: object) -> object:
    """Return a value of an entry in the form in which two can be compared: tags may be a list."""
    return sorted(word.strip() for word in value.split(",")) if isinstance(value, str) else value


def _place_in(entry: Entry, what: str) -> Place:
    """Return the place of the text or key that torchgen's message mentions, or else of the schema."""
    schema = str(entry.fields["func"])
    words = [match[1] for pattern, _ in _WORDS if (match := re.search(pattern, what)) and match[1] in schema]
    others = [key for key in entry.fields if key != "func"]
    quoted = [key for key in others if re.search(rf"\bnot an? \w+: {re.escape(str(entry.fields[key]))}$", what)]
    keys = [*quoted, *(key for key in others if key.removesuffix("s") in what)]
    if words or not keys:
        return entry.value("func", schema.find(words[0]) if words else 0)
    return entry.place(keys[0])


def _remedy(what: str, base: BaseOperators) -> str:
    """Return a remedy for torchgen's error ``what``."""
    for pattern, known in (*_WORDS, (r"illegal tag (\w+)", base.tags)):
        if known and (match := re.search(pattern, what)) and match[1].isidentifier():
            return nearest(match[1], known)
    otherwise = "compare it with an entry of PyTorch's own file"
    return next((todo for pattern, todo in _REMEDIES if re.search(pattern, what)), otherwise)


def _check_default(argument: Argument, entry: Entry, findings: Findings) -> bool:
    """Check that torchgen can translate the default of ``argument``, if it has one."""
    default, kind = argument.default, argument.type
    if default is None or _fits(default, kind):
        return True
    inner = kind
    while isinstance(inner, (OptionalType, ListType)):
        inner = inner.elem
    _, example = _DEFAULTS.get(inner.name, ("", "None")) if isinstance(inner, BaseType) else ("", "None")
    todo = f"write it as in `{f'[{example}]' if isinstance(kind, ListType) else example}`, or leave it out"
    findings.add(place_of_argument(argument.name, entry), f"`{default}` is not a default for {kind}", todo)
    return False


def _fits(default: str, kind: Type) -> bool:
    if isinstance(kind, OptionalType):
        return default == "None" or _fits(default, kind.elem)
    if isinstance(kind, ListType):
        if not default.startswith("[") or not default.endswith("]"):
            return kind.size is not None and _fits(default, kind.elem)
        return all(_fits(part.strip(), kind.elem) for part in default[1:-1].split(",") if default != "[]")
    return isinstance(kind, BaseType) and re.fullmatch(_DEFAULTS.get(kind.name, ("(?!)",))[0], default) is not None


def _check_names(function: Function, base: BaseOperators, findings: Findings) -> None:
    """Check that the operator's name is free in Python."""
    name = function.schema.name.name
    if name.dunder_method or str(name) in base.base_names:
        return
    what, native = "", function.native
    in_torch = Variant.function in native.variants and native.python_module is None
    if keyword.iskeyword(str(name)):
        what = f"`{name}` is a Python keyword, so it cannot be used in a call"
    elif in_torch and str(name) in base.torch_names:
        what = f"torch.{name} already exists, and would be hidden"
    elif Variant.method in native.variants and str(name) in base.tensor_names:
        what = f"Tensor.{name} already exists, and would be hidden"
    if what:
        findings.add(function.entry.value("func"), what, "give it another name")
    pattern = next((p.pattern.strip("^$") for p in SKIP_PYTHON_BINDINGS if p.match(cpp.name(native.func))), "_backward")
    is_usual = "_backward" in pattern or str(name).startswith("_") or function.schema.kind() == SchemaKind.out
    if not is_usual:
        what = f"Python has no function or method {name}, since torchgen makes none for names like `{pattern}`"
        todo = f"give it another name, or call torch.ops.aten.{name}"
        findings.add(function.entry.value("func"), what, todo, is_warning=True)


def _check_arguments(function: Function, findings: Findings) -> None:
    """Check the names of the arguments, and what Python makes of their defaults."""
    seen: set[str] = set()
    is_bound = should_generate_py_binding(function.native)
    is_function = is_bound and Variant.function in function.native.variants
    for argument in function.schema.arguments.flat_all:
        name, what, todo = argument.name, "", "give the argument another name"
        if name in seen:
            what = f"two arguments are named `{name}`"
        elif keyword.iskeyword(name):
            what = f"`{name}` is a Python keyword, so it cannot be used in a call"
        elif is_keyword(name):
            what = f"`{name}` is a word of C++, so no variable can have this name"
        elif name == "input" and is_function and function.schema.arguments.self_arg is not None:
            what = "in Python, the argument `self` of a function is called `input`, too"
        elif argument.default == "Mean" and is_bound and function.schema.kind() == SchemaKind.functional:
            # Python's argument parser reads at::Reduction::Mean with atol (set_default_str in
            # torch/csrc/utils/python_arg_parser.cpp), so torch.hinge_embedding_loss(x, y) does not reduce, either.
            what = f"the default Mean of `{name}` is 0, no reduction, when called from Python"
            todo = f"write `{name}=1`: the same schema, and the mean"
        if what:
            findings.add(place_of_argument(name, function.entry), what, todo, is_warning="Mean" in what)
        seen.add(name)


def _check_keys(function: Function, kernel: Function, findings: Findings) -> None:
    """Check what other keys ask for. ``kernel`` is the entry with the kernel of ``function``."""
    entry, native, schema = function.entry, function.native, function.schema
    if Variant.method in native.variants and schema.arguments.self_arg is None:
        what = f"{schema.name} is a method, but no argument is named `self`"
        findings.add(entry.place("variants"), what, "name the tensor `self`, or leave `method` out")
    if native.python_module is not None and native.python_module not in PYTHON_MODULES:
        what = f"operators cannot be bound in a Python module `{native.python_module}`"
        findings.add(entry.place("python_module"), what, nearest(native.python_module, PYTHON_MODULES))
    is_factory = native.category_override == "factory" and not schema.is_out_fn()
    if is_factory and schema.arguments.tensor_options is None:
        what = f"{schema.name} is no factory: it does not take dtype, layout, device and pin_memory"
        findings.add(entry.place("category_override"), what, "leave it out, or add these arguments")
    if native.manual_cpp_binding:
        what = "manual_cpp_binding needs a handwritten C++ function in PyTorch's sources"
        findings.add(entry.place("manual_cpp_binding"), what, "leave it out; the function is then generated")
    if schema.name.overload_name.split("_")[-1] == "out" and not schema.arguments.out:
        what = f"{schema.name} has the name of an out variant, but mutates no argument after the `*`"
        findings.add(entry.value("func"), what, "write `*, Tensor(a!) out) -> Tensor(a!)`", is_warning=True)
    # TensorIterator is elementwise, and torch.compile relies on the tag.
    reduces = any("dim" in a.name for a in kernel.schema.arguments.flat_all)
    iterates = kernel.native.structured_inherits == "TensorIteratorBase"
    if iterates and not reduces and "pointwise" not in native.tags:
        what = f"{schema.name} is a TensorIterator operator without the tag `pointwise`"
        findings.add((entry.file, entry.line, 0), what, "add `tags: pointwise` if it is elementwise", is_warning=True)


def _check_groups(entries: list[Entry], functions: list[Function], base: BaseOperators, findings: Findings) -> None:
    """Run torchgen's grouping for each name without other errors."""
    broken = {(error.file, error.line) for error in findings.errors}
    # By identity, since YAML allows two entries on one line.
    sound = {id(f.entry) for f in functions if not broken & {(p[0], p[1]) for p in f.entry.places.values()}}
    waiting = {root_of(entry.operator) for entry in entries if id(entry) not in sound}
    by_root: dict[str, list[Function]] = defaultdict(list)
    for function in functions:
        by_root[root_of(function.entry.operator)].append(function)
    with groups_accept(f.entry.schema for f in functions):
        for root, group in by_root.items():
            if root not in waiting:
                _check_group(root, group, base, findings)


def _check_group(root: str, group: list[Function], base: BaseOperators, findings: Findings) -> None:
    functions = [*((f.native, f.kernels) for f in group), *base.functions_like(root)]
    natives = [native for native, _ in functions]
    schemas = [native.func for native in natives]
    kernels: Kernels = defaultdict(dict)
    try:
        for _, of_native in functions:
            BackendIndex.grow_index(kernels, of_native)
        error_check_native_functions(natives)
        add_generated_native_functions(natives, kernels)
        grouped = get_grouped_native_functions(natives)
        get_grouped_by_view_native_functions(natives)
    except Exception as error:  # torchgen raises arbitrary errors
        what = str(error).strip() or f"torchgen cannot group the variants of this operator ({type(error).__name__})"
        named = {
            m.start(): f
            for f in group
            if (m := re.search(rf"(?<![\w.]){re.escape(str(f.schema.name))}(?!\w|\.\w)", what))
        }
        entry = named[min(named)].entry if named else group[0].entry
        is_delegate = "structured_delegate pointing to" in what
        findings.add(
            entry.place("structured_delegate") if is_delegate else entry.value("func"), what, _remedy(what, base)
        )
        return
    for f in group:
        if any(f.native is one for one in grouped):
            _check_lonely(f, schemas, findings)


def _check_lonely(function: Function, schemas: list[FunctionSchema], findings: Findings) -> None:
    """Functionalization replaces a mutating operator by its functional variant, so it needs one, and an out variant.

    Required by torchgen/gen_functionalization_type.py, which gives no place.
    """
    native, place, twin = function.native, function.entry.value("func"), function.schema.signature()
    if native.has_composite_implicit_autograd_kernel:
        is_there = any(s.kind() == SchemaKind.functional and s.signature() == twin for s in schemas)
        if function.schema.kind() == SchemaKind.inplace and not is_there:
            what = f"{function.schema.name} has no functional variant"
            findings.add(place, what, f"add an entry for `{twin}`", is_warning=True)
    elif modifies_arguments(native) and not native.is_view_op:
        if str(native.func.name) in MUTABLE_OPS_NOT_USING_FUNCTIONALIZATION or is_accepted(
            function.entry, native, findings
        ):
            return
        if function.schema.kind() == SchemaKind.functional:
            what = f"{native.func.name} mutates `self`, but has not the name of an in-place operator"
            findings.add(place, what, f"name it {native.func.name.name}_")
            return
        twins = [generate_function(native, kind)[0].func.name for kind in (SchemaKind.functional, SchemaKind.out)]
        what = f"{native.func.name} mutates an argument, but has no functional and out variants"
        findings.add(place, what, f"add `autogen: {twins[0]}, {twins[1]}`, or write them out")
