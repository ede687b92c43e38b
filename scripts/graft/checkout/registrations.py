"""Remove what decorators in PyTorch's Python files registered for operators, so that it can be registered again."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from pathlib import Path

from .python_operators import Function

_DECOMPOSITIONS = "global_decomposition_table['{}']"
_POST_AUTOGRAD = "post_autograd"
_IMPORT = "from torch._decomp import global_decomposition_table"

# Decorators that register nothing, or that replace what is registered.
_OTHERS = re.compile(
    r"out_wrapper|_inplace_wrapper|\w*pw_cast_for_opmath\w*|elementwise_\w+_wrapper|_dot_check_wrapper"
    r"|(?:_inductor\.)?register_lowering|(?:functools\.)?(?:wraps|cache|lru_cache)|(?:contextlib\.)?contextmanager|torch\.no_grad"
)
# An operator, with or without its overload, as PyTorch's files spell it.
_OPERATOR = re.compile(r"(?:torch\.(?:_ops\.)?ops\.\w+|aten|prims|quantized)\.\w+(\.\w+)?")
# The files that define these decorators. Other files define decorators of the same names, with tables of their own.
_DEFINED_IN = {
    "register_decomposition": "torch/_inductor/decomposition.py",
    "register_meta": "torch/_meta_registrations.py",
    "register_op_impl": "torch/_subclasses/fake_impls.py",
}
# Decorators of torch/_refs. They register for the operator that is named after the module and the function.
_REFERENCES = re.compile(r"_make_elementwise_(?:unary|binary)_reference")


def freeing(function: Function, file: str, defined: Collection[str] = ()) -> list[str] | None:
    """Return statements that remove what the decorators of a function registered, so that another function can be
    registered; None if they are not known.

    Args:
        function: the function, with its decorators.
        file: the path of its file in the checkout.
        defined: the functions that the file defines.
    """
    names = {_name_of(each) for each in function.decorator_list}.intersection(defined, _DEFINED_IN)
    if any(_DEFINED_IN[name] != file for name in names):
        return None
    try:
        return [each for decorator in function.decorator_list for each in _freeing(decorator, function.name, file)]
    except LookupError:
        return None


def _freeing(decorator: ast.expr, function: str, file: str) -> Iterator[str]:
    """Yield the statements for one decorator. Raise LookupError if they are not known."""
    call = decorator if isinstance(decorator, ast.Call) else None
    name = _name_of(decorator)
    named = {each.arg or "": each.value for each in call.keywords} if call else {}
    first, *others = [*(call.args if call else []), None]
    kind = name.rpartition(".")[2]
    module = name.removesuffix(kind)
    if _OTHERS.fullmatch(name):
        return
    if _REFERENCES.fullmatch(name) and file.startswith("torch/_refs/"):
        if ast.unparse(named.get("should_register_decomposition", ast.Constant(True))) == "False":
            return
        operators = named.get("aten_op") or (others[0] if "binary" in name and others else None)
        if operators is None or ast.unparse(operators) == "infer_aten_op":
            inside = Path(file).relative_to("torch/_refs").parent.parts  # as torch._prims_common.get_aten_op
            operators = ast.parse(f"torch.ops.aten.{'_'.join((*inside, function))}", mode="eval").body
        if ast.unparse(operators) != "None":
            yield from _taking_out(_DECOMPOSITIONS.format(_POST_AUTOGRAD), operators)
    elif kind == "register_decomposition" and first is not None:
        yield from _taking_out(_table(name, named, others[0] if others else None, file), first)
    elif kind == "register_meta" and first is not None:
        yield from _taking_out(f"{module}meta_table", first)
        for each, is_overload in _operators(first):
            kernels = "py_kernels.pop(torch._C.DispatchKey.Meta, None)"
            yield (
                f"{each}.{kernels}"
                if is_overload
                else f"[getattr({each}, name).{kernels} for name in {each}.overloads()]"
            )
    elif kind == "register_op_impl" and first is not None:
        yield from _taking_out(f"{module}op_implementations_dict", first)
    elif kind == "py_impl" and first is not None and "DispatchKey." in ast.unparse(first):
        operator = name.rpartition(".")[0]
        yield f"{operator}.py_kernels.pop({ast.unparse(first)}, None)"
        yield f"{operator}._dispatch_cache.clear()"
    else:
        raise LookupError(name)


def _name_of(decorator: ast.expr) -> str:
    return ast.unparse(decorator.func if isinstance(decorator, ast.Call) else decorator)


def _table(name: str, named: dict[str, ast.expr], second: ast.expr | None, file: str) -> str:
    """Return the table that ``register_decomposition`` fills. Inductor has one of its own."""
    if given := named.get("registry") or second:
        return ast.unparse(given)
    if name == "register_decomposition" and file == "torch/_inductor/decomposition.py":
        return "decompositions"
    kind = named.get("type", ast.Constant(_POST_AUTOGRAD))
    return _DECOMPOSITIONS.format(ast.literal_eval(kind)) if isinstance(kind, ast.Constant) else _unknown(kind)


def _taking_out(table: str, operators: ast.expr) -> Iterator[str]:
    for each, is_overload in _operators(operators):
        if is_overload:
            yield f"{table}.pop({each}, None)"
        else:
            yield f"[{table}.pop(getattr({each}, name), None) for name in {each}.overloads()]"


def _operators(node: ast.expr) -> Iterator[tuple[str, bool]]:
    """Yield the operators that an argument names, each with whether it is an overload."""
    if isinstance(node, ast.List | ast.Tuple):
        for each in node.elts:
            yield from _operators(each)
    elif found := _OPERATOR.fullmatch(ast.unparse(node)):
        yield found[0], bool(found[1])
    else:
        _unknown(node)


def _unknown(node: ast.expr) -> str:
    raise LookupError(ast.unparse(node))


def imports_for(statements: list[str]) -> list[str]:
    """Return the imports that statements need."""
    return [_IMPORT] if any("global_decomposition_table" in each for each in statements) else []
