"""Check operators that write positional arguments: ``foo(Tensor x, Tensor(a!) out) -> ()``."""

from __future__ import annotations

from ..codegen.torchgen import BaseTy, BaseType, FunctionSchema, NativeFunction
from ..codegen.writing import is_optional, is_writing, written
from ..inputs.entries import Entry
from . import Findings

# torchgen's errors about such schemas: the code, a part of the message, and the remedy.
REMEDIES_OF_WRITING = (
    (
        "out-arguments",
        r"Must return as many arguments as there are out arguments",
        "move the written argument before the `*`, or return it: `*, Tensor(a!) out) -> Tensor(a!)`",
    ),
    (
        "out-arguments",
        r"out= ops that accept tensor lists",
        "return `()` for a list of out arguments; write an optional argument before the `*`",
    ),
    (
        "mutable-argument",
        r"mutable pre_self_positional",
        "write `self` before the written arguments, or give it another name, such as `input`",
    ),
    (
        "mutable-argument",
        r"mutable positional args, we expect them to not be returned|All mutable returns must be aliased",
        "return nothing, `-> ()`, or write the argument after the `*`, as `*, Tensor(a!) out) -> Tensor(a!)`",
    ),
)


def refuse_optional(schema: FunctionSchema, entry: Entry, findings: Findings) -> None:
    """Report a written optional argument that would be returned: an out argument, or one with ``autogen``."""
    out = next((a for a in schema.arguments.out if is_optional(a)), None)
    autogen = next((a for a in written(schema) if is_optional(a)), None) if "autogen" in entry.fields else None
    if out:
        what = f"`{out.name}` is an out argument, which cannot be optional"
        findings.add("optional-mutable", entry.value("func"), what, f"move `{out}` before the `*`, or leave `?` out")
    if autogen:
        what = f"`{autogen.name}` is written and may be None, which the variants of `autogen` would return"
        findings.add("optional-mutable", entry.place("autogen"), what, "leave `autogen` out")


def is_accepted(entry: Entry, native: NativeFunction, findings: Findings) -> bool:
    """Return whether an operator needs no functional and out variants, since it returns nothing that it writes."""
    schema = native.func
    if not is_writing(native) or schema.returns_are_aliased():
        return False
    if any(r.type != BaseType(BaseTy.Tensor) for r in schema.returns):
        what = f"torch.compile cannot use {schema.name}: it writes arguments, and returns what is no Tensor"
        findings.warn("mutable-returns", entry.value("func"), what, "return `()`, or each result as `Tensor`")
    return True


def refuses_formula(schema: FunctionSchema, entry: Entry, findings: Findings) -> bool:
    """Report the formula of ``entry`` if its operator writes arguments. Return whether it writes any."""
    if not (arguments := written(schema)):
        return False
    what = f"{schema.name} writes `{arguments[0].name}`, which a derivative formula cannot describe"
    todo = "leave this entry out; write a functional operator with the formula, and this one beside it"
    findings.add("formula-for-mutable", entry.value("name"), what, todo)
    return True
