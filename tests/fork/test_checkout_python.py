"""Python files that a checkout or a branch changes: laid over whole, or as text behind the release's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from graft.checkout.changed_python import Difference
from graft.checkout.python import Taken, installed_name, taken
from graft.checkout.python_operators import without_docstrings
from graft.checkout.tests import opinfo_names
from helpers import beside, write

CASES = beside(__file__)
BEFORE, DOCSTRINGS = CASES["before"], CASES["docstrings"]

NAME = "torch/_refs/__init__.py"


def take(
    after: str | bytes | None,
    *,
    name: str = NAME,
    before: str | None = BEFORE,
    wheel: str | None = BEFORE,
    added: tuple[str, ...] = (),
    refused: tuple[str, ...] = (),
    only_behind: bool = False,
) -> Taken:
    old, new, installed = (each.encode() if isinstance(each, str) else each for each in (before, after, wheel))
    return taken(name, old, new, installed, added, refused, only_behind=only_behind)


def changed(*pairs: tuple[str, str]) -> str:
    text = BEFORE
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new, 1)
    return text


OTHER_WHEEL = BEFORE + "\n\ndef of_the_wheel():\n    pass\n"
EDIT = changed(("return x + 1", "return x + 10"))


def test_file_of_the_base_is_laid_over_whole() -> None:
    assert take(EDIT) == take(EDIT.replace("\n", "\r\n")) == Taken(whole=EDIT.encode())


def test_other_file_gets_text_behind_at_the_same_lines() -> None:
    after = changed(("return x + 1", "return x + 10"), ('["one"]', '["one", "two", "three"]'))
    found = take(after, wheel=OTHER_WHEEL)
    assert found.whole is None
    lines = after.split("\n")
    assert {number: line for number, line in enumerate(found.behind.split("\n"), 1) if line} == {
        5: '__all__ += [ "two", "three", ]',
        **{number: lines[number - 1] for number in (9, 10)},
    }


def test_elements_in_several_lines_stay_at_theirs() -> None:
    element = '    OpInfo(\n        "mine",\n        text="""a\n    b""",\n    ),\n'
    after = changed(
        ('    OpInfo("add"', f'{element}    OpInfo("add"'), ("ok=True),\n]", 'ok=True),\n    OpInfo("x"),\n]')
    )
    behind = take(after, wheel=OTHER_WHEEL).behind.split("\n")
    number = after.split("\n").index("    OpInfo(")
    assert behind[number : number + 5] == ["infos += [ OpInfo(", *element.split("\n")[1:5]]
    assert behind[number + 6] == '    OpInfo("x"), ]'
    names: dict[str, object] = {"infos": [], "OpInfo": lambda name, text="": (name, text)}
    exec("\n".join(behind), names)
    assert names["infos"] == [("mine", "a\n    b"), ("x", "")]


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(BEFORE, id="the same"),
        pytest.param(BEFORE.replace("\n", "\r\n"), id="line ends"),
        pytest.param(BEFORE.replace("def one(x)", "# one\ndef one( x )"), id="comment and layout"),
        pytest.param(OTHER_WHEEL, id="what the wheel has"),
    ],
)
def test_nothing_to_take(after: str) -> None:
    assert take(after, wheel=OTHER_WHEEL) == Taken()


def test_new_files() -> None:
    assert take(EDIT, before=None, wheel=None) == Taken(whole=EDIT.encode())
    assert take(EDIT, before=None, wheel=None, only_behind=True) == Taken(behind=EDIT)
    assert take("", before=None, wheel=None) == Taken(whole=b"")
    assert take("", before=None, wheel=None, only_behind=True) == Taken(behind="\n")
    assert take(EDIT, only_behind=True).behind.strip() == "def one(x):\n    return x + 10"


def test_stub() -> None:
    assert installed_name("torch/nn/functional.pyi.in") == "torch/nn/functional.pyi"
    assert take(EDIT, name="torch/x.pyi.in") == Taken(whole=EDIT.encode())
    with pytest.raises(ValueError, match="generates the installed stub"):
        take(EDIT, name="torch/x.pyi.in", wheel=OTHER_WHEEL)


@pytest.mark.parametrize("wheel", [DOCSTRINGS[:45], DOCSTRINGS[:45] + "y = 1\n"])
def test_docstrings_of_added_operators(wheel: str) -> None:
    """PyTorch's notes are no arguments."""
    found = take(DOCSTRINGS, before=DOCSTRINGS[:45], wheel=wheel, added=("mine",))
    assert found.docs == {"docs/mine.rst": "Is a set {1}.\n\nArgs:\n    {input}\n"}
    text = found.behind or (found.whole or b"").decode()
    assert text.split("\n")[13] == "x = 1"
    assert "mine" not in text
    note = DOCSTRINGS.replace("    {input}", "{note}")
    computed = take(note, before=DOCSTRINGS[:45], wheel=wheel, added=("mine",))
    assert (computed.docs, computed.left) == ({}, ["the docstring of mine, which is computed"])


def test_docstrings_of_other_operators_are_not_behind() -> None:
    with pytest.raises(ValueError, match="cannot change docstrings"):
        take(DOCSTRINGS, name="torch/_torch_docs.py", before=DOCSTRINGS[:45], wheel="y = 1\n", only_behind=True)


def test_what_cannot_be_behind_is_merged() -> None:
    """A clone of main and a release: a decorated function is edited, and upstream has changed the file elsewhere."""
    edit = changed(("return torch.lerp(x, x, 1)", "return torch.lerp(x, x, 3)"))
    found = take(edit, wheel=OTHER_WHEEL)
    assert (found.whole or b"").decode() == OTHER_WHEEL.replace("torch.lerp(x, x, 1)", "torch.lerp(x, x, 3)")
    assert found.left == []
    both = edit.replace("return x + 1", "return x + 10")
    found = take(both, wheel=OTHER_WHEEL.replace("torch.lerp(x, x, 1)", "torch.lerp(x, 1, x)"))
    text = (found.whole or b"").decode()
    assert "return x + 10" in text and "torch.lerp(x, 1, x)" in text and "<<<" not in text
    line = both[: both.index("torch.lerp(x, x, 3)")].count("\n") + 1
    assert found.left == [f"line {line}, since the installed torch has line {line} there"]
    renamed = changed(("def calls(x)", "def second(x)"), ("infos =", "also = second\n\n\ninfos ="))
    with pytest.raises(ValueError, match="`second`: what defines it meets another change"):
        take(renamed, wheel=OTHER_WHEEL.replace("def calls(x)", "def calls(x, y=1)"))
    with pytest.raises(ValueError, match="text behind the file cannot change"):
        take(edit, wheel=OTHER_WHEEL, only_behind=True)


NEW_FUNCTION = ("def register(op)", "def fresh(x):\n    return torch.lerp(x, x, 1, new=1)\n\n\ndef register(op)")


@pytest.mark.parametrize(
    ("old", "new", "left"),
    [pytest.param(*row, id=name) for name, row in CASES["refused"].items()],
)
def test_what_is_refused_stays_as_it_is(old: str, new: str, left: str) -> None:
    after = changed(NEW_FUNCTION, (old, new))
    assert take(after) == Taken(whole=after.encode())
    found = take(after, refused=("lerp.Scalar",))
    assert found.left == [left]
    assert found.behind.strip("\n") == NEW_FUNCTION[1].partition("\n\n\n")[0]


def test_overloads_that_are_not_refused() -> None:
    after = changed(("lerp.Scalar)\ndef lerp_decomposition", "lerp.Scalar)\ndef renamed"))
    assert take(after, refused=("lerp.Tensor", "ler", "Scalar")) == Taken(whole=after.encode())
    assert take(after, refused=("lerp.Scalar",)) == Taken(left=["`renamed`", "`lerp_decomposition`"])


def test_removed_function_of_a_refused_operator_stays() -> None:
    gone = BEFORE[BEFORE.index("@register") : BEFORE.index("@cached")]
    assert take(changed((gone, "")), refused=("lerp.Scalar",)) == Taken(left=["`lerp_decomposition`"])


@pytest.mark.parametrize(("change", "said"), [*CASES["not_taken"], ({"after": b"\xff"}, "not UTF-8")])
def test_what_is_not_taken_is_named(change: dict[str, Any], said: str) -> None:
    given = {"after": EDIT, **change}
    if "behind" in given:
        given["after"] = BEFORE + given.pop("behind")
    if "edits" in given:
        given["after"] = changed(*given.pop("edits"))
    if given.get("wheel"):
        given["wheel"] = OTHER_WHEEL
    with pytest.raises(ValueError, match=re.escape(said)):
        take(**given)


_INTERNAL = "torch/testing/_internal"
_OPINFOS = {
    f"{_INTERNAL}/common_methods_invocations.py": """op_db = [
    UnaryUfuncInfo('sinc', ref=f),
    OpInfo("nn.functional.gelu", aten_name="gelu"),
    OpInfo('cross'),
]
""",
    f"{_INTERNAL}/opinfo/definitions/linalg.py": """op_db = [OpInfo(
    "linalg.cross",
)]
""",
}


@pytest.mark.parametrize(
    ("operator", "names"),
    [
        ("sinc.out", ["sinc"]),
        ("gelu_backward.grad_input", ["gelu"]),
        ("linalg_cross", ["linalg_cross"]),
        ("cross", ["cross"]),
        ("_cross", ["cross"]),
        ("functional", []),
    ],
)
def test_names_of_opinfos(tmp_path: Path, operator: str, names: list[str]) -> None:
    assert opinfo_names(write(tmp_path, _OPINFOS), [operator]) == names


MODULE = CASES["module"]


def values(text: str) -> dict[str, Any]:
    """Return what a user of a module sees."""
    names: dict[str, Any] = {"__name__": "module"}
    exec(compile(text, "module", "exec"), names)
    called = {name: names[name](1) for name in ("one", "two", "three", "four", "six") if name in names}
    return {**called, "listed": sorted(names["__all__"]), "size": names["Five"].size, "sep": names.get("sep")}


@pytest.mark.parametrize(("old", "new"), CASES["behind"])
def test_text_behind_makes_the_same_module(old: str, new: str) -> None:
    after = MODULE.replace(old, new)
    assert values(MODULE + Difference(MODULE, after).behind()[0]) == values(after)
    assert values(after) != values(MODULE)


DECOMPOSITIONS = """import torch
from torch._decomp import register_decomposition

aten = torch.ops.aten


@register_decomposition(aten.lerp.Scalar)
@out_wrapper()
def one(x):
    return 1


@register_decomposition([aten.add, aten.sub.Tensor], type="meta")
def two(x):
    return 2


@unknown
def three(x):
    return 3
"""
FREED = (
    "global_decomposition_table['post_autograd'].pop(aten.lerp.Scalar, None)",
    "[global_decomposition_table['meta'].pop(getattr(aten.add, name), None) for name in aten.add.overloads()]",
    "global_decomposition_table['meta'].pop(aten.sub.Tensor, None)",
)


@pytest.mark.parametrize(
    ("edits", "freed", "left"),
    [
        pytest.param([("return 1", "return 10")], FREED[:1], [], id="another body"),
        pytest.param([("def one", "def other")], FREED[:1], [], id="another name"),
        pytest.param(
            [(DECOMPOSITIONS[DECOMPOSITIONS.index("@register_decomposition([") :], "")],
            FREED[1:],
            ["line 19 of the release's"],
            id="gone",
        ),
        pytest.param([("return 3", "return 30")], (), ["line 19 of the branch's"], id="an unknown decorator"),
        pytest.param(
            [("return 3", "return 30"), ("def one", "def other"), ("return 2", "return one(x)")],
            (*FREED[1:], FREED[0]),
            ["line 19 of the branch's"],
            id="the rest of the file",
        ),
        pytest.param(
            [("return 3", "return 30"), ("def one(x):\n    return 1", "def other(x):\n    return three(x)")],
            (),
            ["line 9 of the release's", "`other`, which needs `three`", "line 19 of the branch's"],
            id="another name, and it is left out",
        ),
    ],
)
def test_what_is_registered_is_taken_out_first(
    edits: list[tuple[str, str]], freed: tuple[str, ...], left: list[str]
) -> None:
    after = DECOMPOSITIONS
    for old, new in edits:
        assert after.count(old) == 1
        after = after.replace(old, new)
    text, faults = Difference(DECOMPOSITIONS, after, file="torch/_decomp/decompositions.py").behind()
    first, *others = text.split("\n")
    imported = "from torch._decomp import global_decomposition_table"
    assert first == "; ".join([imported, *freed] if freed else [])
    assert sorted(faults) == sorted(left)
    lines = after.split("\n")
    assert all(line in ("", lines[number]) for number, line in enumerate(others, 1))


def behind(before: str, *edits: tuple[str, str], file: str = "torch/x.py") -> tuple[str, list[str]]:
    after = before
    for old, new in edits:
        assert after.count(old) == 1
        after = after.replace(old, new)
    return Difference(before, after, file=file).behind()


def test_what_is_left_out_is_called_as_before() -> None:
    before = "def step(x):\n    return x\n\n\n@unknown\ndef run(x):\n    return step(x)\n"
    text, faults = behind(before, ("step(x):", "step(x, y):"), ("step(x)\n", "step(x, 1)\n"))
    assert (text, faults) == ("", ["`step`, which is still called with other arguments", "line 6 of the branch's"])
    text, faults = behind(before, ("return x\n", "return x + 1\n"), ("step(x)\n", "step(x) * 2\n"))
    assert text.strip() == "def step(x):\n    return x + 1" and faults == ["line 6 of the branch's"]


def test_functions_of_one_name() -> None:
    before = "@a.py_impl(DispatchKey.Meta)\ndef _(x):\n    return 1\n\n\n@fake\ndef _(x):\n    return 2\n"
    text, faults = behind(before, ("return 1", "return 10"), ("return 2", "return 20"))
    assert text == "" and len(faults) == 4


def test_a_decorator_of_the_files_own() -> None:
    before = (
        "def register_decomposition(op):\n    return table(op)\n\n\n@register_decomposition(aten.mm)\ndef one(x):\n"
    )
    assert behind(f"{before}    return 1\n", ("return 1", "return 2")) == ("", ["line 6 of the branch's"])


def test_what_is_registered_by_another_function_now() -> None:
    """The one that had it is left out, and stays."""
    before = (
        "size = 1\n\n\n@register_decomposition([aten.lift, aten.alias])\ndef both(x):\n    return x\n\n\n"
        "@register_decomposition(aten.mm)\ndef last(x):\n    return x\n"
    )
    lift = "@register_decomposition(aten.lift)\ndef lift(x):\n    return x\n\n\n@register_decomposition(aten.mm)"
    edits = (
        ("size = 1", "size = 2"),
        ("[aten.lift, aten.alias]", "[aten.alias]"),
        ("both(x):\n    return x", "both(x):\n    return size"),
    )
    text, faults = behind(before, *edits, ("@register_decomposition(aten.mm)", lift))
    assert len(faults) == 2 and ".pop(getattr(aten.lift, name), None)" in text.split("\n")[0] and "def lift" in text


def test_names_of_a_block_that_is_left_out() -> None:
    block = "try:\n    import numpy as np\nexcept ImportError:\n    np = None\n\n\ndef one(x):\n    return np"
    text, faults = behind("x = 1\n\n\ndef one(x):\n    return x\n", ("def one(x):\n    return x", block))
    assert text == "" and faults == ["line 4 of the branch's", "`one`, which needs `np`"]


def test_a_function_in_the_first_line() -> None:
    before = "def x(): return 1\n@register_decomposition(aten.mm)\ndef one(x):\n    return 1\n"
    text, _ = behind(before, ("def x(): return 1", "def x(): return 2"), ("    return 1", "    return 2"))
    compile(text, "text", "exec")
    assert "mm" in text.split("\n")[0] and text.split("\n")[1] == "def x(): return 2"


def test_what_a_decorator_registers() -> None:
    """As PyTorch's files have them."""
    for decorator, file, freed in (
        ("_make_elementwise_unary_reference(kind)", "torch/_refs/special/__init__.py", "special_one"),
        ("_make_elementwise_unary_reference(kind, aten_op=None)", "torch/_refs/__init__.py", ""),
        ("register_meta(aten.mm)", "torch/_meta_registrations.py", "meta_table.pop(getattr(aten.mm"),
        ("aten.t.default.py_impl(DispatchKey.Meta)", "torch/_refs/__init__.py", "aten.t.default.py_kernels.pop"),
        ("register_decomposition([aten.mm])", "torch/_inductor/decomposition.py", "decompositions.pop("),
        ("register_op_impl(aten.mm.default)", "torch/_subclasses/fake_impls.py", "op_implementations_dict.pop("),
    ):
        before = f"@{decorator}\ndef one(x):\n    return 1\n"
        text, faults = Difference(before, before.replace("1", "2"), file=file).behind()
        assert not faults and freed in text.split("\n")[0]
    for decorator in ("register_op_impl(is_constructor)", "register_decomposition(table[0])", "register(aten.mm)"):
        before = f"@{decorator}\ndef one(x):\n    return 1\n"
        assert Difference(before, before.replace("1", "2"), file="torch/_refs/__init__.py").behind()[0] == ""


def test_comments_and_layout_add_nothing() -> None:
    assert Difference(MODULE, MODULE.replace("def two(x):", "# two\ndef two( x ):")).behind() == ("", [])


@pytest.mark.parametrize(("old", "new", "said"), CASES["not_behind"])
def test_what_cannot_be_behind_is_named(old: str, new: str, said: str) -> None:
    text, (fault,) = Difference(MODULE, MODULE.replace(old, new)).behind()
    assert said in fault and not text


@pytest.mark.parametrize(("before", "after", "said"), CASES["taken_at_import"])
def test_what_the_file_takes_at_import_is_named(before: str, after: str, said: str) -> None:
    text, (fault,) = Difference(before, after).behind()
    assert said in fault and not text


def test_docstrings_of_new_operators_are_taken_out() -> None:
    text = """add_docstr(
    torch.mine,
    r'''
mine(input) -> Tensor
''',
)

x = 1
add_docstr(torch.add, "PyTorch's")
add_docstr_all("mine", "of the method")
other = _add_docstr(_fft.fft_other, "{}".format(x))
"""
    rest, found = without_docstrings(text, {"mine", "fft_other"})
    assert rest.splitlines() == [*[""] * 7, "x = 1", 'add_docstr(torch.add, "PyTorch\'s")', "", ""]
    assert found == {"mine": "\nmine(input) -> Tensor\n", "fft_other": ""}
