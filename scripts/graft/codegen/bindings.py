"""Python bindings of the new operators, which are added to the classes and modules of ``torch._C``."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

from . import NODES, torchgen
from .description import NAMESPACES, Namespace
from .operators import Operators, Selection
from .output import Drafts, Output
from .torchgen import BaseOperatorName, NativeFunction, PythonSignatureNativeFunctionPair, is_bound_in

# Headers that few bindings need, by what they use.
_HEADERS = {
    r"\breturn torch::\w+\(": '#include "torch/csrc/autograd/generated/variable_factories.h"',
    r"\b_r\.(?:\w+listOptional|list_of_optional_tensors)\(": "#include <ATen/core/ivalue.h>",
}


@cache
def signatures(operators: Operators, *, method: bool) -> Sequence[PythonSignatureNativeFunctionPair]:
    """Return every Python signature of functions, or methods, of the merged set, including deprecated ones."""
    deprecated = str(operators.packaged / "autograd/deprecated.yaml")
    return torchgen.load_signatures(operators.bindable, deprecated, method=method)


def new_names(selection: Selection, namespace: Namespace) -> frozenset[BaseOperatorName]:
    """Return the names in a namespace that have a new overload. Their binding is generated again with all overloads."""
    new = filter(torchgen.should_generate_py_binding, selection.added.functions)
    return frozenset(f.func.name.name for f in new if is_bound_in(f, namespace.name))


def generate_bindings(selection: Selection, out: Output) -> None:
    """Generate ``bindings.cpp`` and the files that it includes, if it binds any operator."""
    # Part of the name of a function, which must differ between the units of a library.
    shard = out.folder.name
    drafts = Drafts(out.folder, lambda _: True)
    with torchgen.autograd_writes(drafts, ".cpp", shard):
        torchgen.gen_autograd_functions_python("python", selection.infos, selection.whole.autograd_templates)
    # An entry of derivatives.yaml without a formula has no autograd node.
    for name, text in drafts.texts.items():
        out.write(name, re.sub(r"^\s*#\s*include .*\n", "", text, flags=re.M))  # NODES has the headers
        torchgen.write_from_template(out, NODES, {"shard": shard})
    ops_headers: set[str] = set()
    texts: list[str] = []
    statements: list[str] = []
    for namespace in NAMESPACES:
        env = _bindings_in(selection, namespace)
        ops_headers.update(env["ops_headers"])
        if env["py_method_defs"]:
            texts.append(_definitions(namespace, env))
            statements += _statements(namespace)
    if not texts and not drafts.texts:
        return
    env = {
        "namespaces": texts,
        "bind_namespaces": statements,
        "nodes": f'#ifndef GRAFT_LOADED\n#include "{NODES}"\n#endif' if drafts.texts else "",
        "more_headers": [header for word, header in _HEADERS.items() if any(re.search(word, text) for text in texts)],
        "ops_headers": sorted(ops_headers),
        **_return_types(selection),
        **torchgen.view_meta_env(selection.added.view_groups),
    }
    torchgen.write_from_template(out, "bindings.cpp", env)


def _bindings_in(selection: Selection, namespace: Namespace) -> dict[str, Any]:
    """Return the environment of torchgen's template for the bindings in a namespace."""
    name, method, names = namespace.name, namespace.is_method, new_names(selection, namespace)
    pairs = [p for p in signatures(selection.whole, method=method) if p.function.func.name.name in names]
    module = None if method else "torch" if name == "torch" else f"torch.{name}"
    generate = partial(torchgen.create_python_bindings, method=method)
    env = torchgen.template_env(generate, pairs, partial(is_bound_in, namespace=name), module, name)
    if method:
        env["py_method_defs"] += torchgen.operator_slots(selection.whole.autograd_templates, set(map(str, names)))
    return env


def _module_variable(namespace: Namespace) -> str:
    """Return the C++ variable for the module that torchgen's bindings use."""
    prefix = {"torch": "", "nn": "NN", "fft": "FFT"}.get(namespace.name, namespace.name.capitalize())
    return f"THP{prefix}VariableFunctionsModule"


def _definitions(namespace: Namespace, env: Mapping[str, Any]) -> str:
    """Return the C++ text of the bindings in a Python namespace, in a C++ namespace of its own."""
    variable = f"[[maybe_unused]] static PyObject* {_module_variable(namespace)} = nullptr;"
    lines = [f"namespace graft_{namespace.name} {{", "" if namespace.is_method else variable]
    lines += [*env["py_forwards"], *env["py_methods"]]
    lines += ["static PyMethodDef definitions[] = {", *env["py_method_defs"], "{nullptr}};"]
    return "\n".join([*lines, f"}} // namespace graft_{namespace.name}\n"])


def _statements(namespace: Namespace) -> list[str]:
    """Return the statements that add the bindings to their class or module."""
    name, attribute = namespace.name, namespace.attribute
    kind = {"methods": "methods", "torch": "static_methods"}.get(name, "functions")
    add = f'graft::add_{kind}(torch_c, "{attribute}", torch::autograd::graft_{name}::definitions);'
    if namespace.is_method:
        return [add]
    variable, module = _module_variable(namespace), attribute.removesuffix("Class")
    return [f'torch::autograd::graft_{name}::{variable} = graft::attribute(torch_c, "{module}");', add]


def _return_types(selection: Selection) -> dict[str, Any]:
    """Return the named tuples of the new operators. If the base has one of the same name, its type is used."""
    new = selection.added
    old = {str(f.func.name.name) for f in selection.whole.functions if f not in new and named_returns(f)}
    pairs = [
        pair
        for pair in signatures(selection.whole, method=False)
        if pair.function in new and str(pair.function.func.name.name) not in old
    ]
    env = torchgen.template_env(torchgen.create_python_return_type_bindings, pairs, lambda _: True, "")
    return {key: [text for text in value if text] for key, value in env.items() if key.startswith("py_")}


def named_returns(f: NativeFunction) -> bool:
    """Return whether Python returns a named tuple for ``f``."""
    return len(f.func.returns) > 1 and all(r.name is not None for r in f.func.returns)
