"""What adopt makes of schemas and names. torchgen's and the compiler's verdicts are in tests/deliveries."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from asking import asked
from graft.adopt.adopt import _found, adopt
from graft.adopt.adopt_options import FILE, Asked, is_tree, read_asked, with_given
from graft.adopt.folder import facts_of, record_of, write
from graft.adopt.names import Names
from graft.adopt.overloads import ambiguous
from graft.adopt.plan import Adopted, Operator, Planner
from graft.adopt.schema import UnreadableError, read_schema, spelled
from graft.adopt.table import changes, shown
from graft.core.errors import UsageError
from helpers import Patch, beside

CASES = beside(__file__)

# As the dispatcher prints them, and as native_functions.yaml spells them.
SPELLED = CASES["spelled"]


@pytest.mark.parametrize("printed", SPELLED)
def test_spelling(printed: str) -> None:
    assert str(spelled(read_schema(printed))) == SPELLED[printed]


def test_any_number_of_values_is_unreadable() -> None:
    with pytest.raises(UnreadableError, match="any number of values"):
        read_schema("ns::f(...) -> ...")


def test_a_written_argument_of_several_sets_is_unreadable() -> None:
    with pytest.raises(UnreadableError, match=r"`a\|b!` of a written argument"):
        read_schema("ns::f(Tensor(a|b!) x) -> ()")


def _operator(schema: str, keys: tuple[str, ...] = ("CPU",)) -> Operator:
    name, _, overload = schema.partition("(")[0].partition(".")
    return Operator(name, overload, schema, keys, "", "FROM_SCHEMA", (), 0)


def _plan(
    *schemas: str,
    taken: Collection[str] = (),
    methods: Collection[str] | None = (),
    prefix: bool = False,
    writes: Mapping[str, Sequence[str]] | None = None,
    given: Mapping[str, str] | None = None,
) -> list[Adopted]:
    names = Names(
        package="their",
        namespace_first=prefix,
        is_taken=lambda name: name in taken,
        is_bound=lambda name: not name.endswith(("_forward", "_backward", "_jvp")),
        is_word=lambda name: name in ("from", "default"),
        given=given or {},
    )
    types = ("Tensor", "int", "float", "bool", "str", "Device", "SymInt")
    return Planner([*map(_operator, schemas)], names, methods, (), taken, types, writes or {}).plan()


def test_what_returns_nothing_and_marks_nothing_is_asked_for() -> None:
    """TorchScript and exported programs drop its call, if it writes something."""
    schema = "ns::norm(Tensor out, Tensor x) -> ()"
    (asked,) = _plan(schema)
    assert (asked.needs, asked.is_entry, str(asked.schema)) == (("writes",), True, "norm(Tensor out, Tensor x) -> ()")
    (said,) = _plan(schema, writes={"norm": ["out"]})
    assert (said.needs, str(said.schema)) == ((), "norm(Tensor(a!) out, Tensor x) -> ()")
    (nothing,) = _plan(schema, writes={"norm": []})
    assert (nothing.needs, str(nothing.schema)) == ((), "norm(Tensor out, Tensor x) -> ()")
    (marked,) = _plan("ns::norm(Tensor(z!) out, Tensor x, Tensor y) -> ()", writes={"norm": ["y"]})
    assert str(marked.schema) == "norm(Tensor(a!) out, Tensor x, Tensor(b!) y) -> ()"


def test_a_pattern_answers_for_many() -> None:
    plan = _plan(
        *(f"ns::{name}(Tensor out, Tensor x) -> ()" for name in ("norm", "rms_norm", "wait")),
        writes={"*norm": ["out"], "norm": ["x"], "*": []},
    )
    assert [str(each.schema) for each in plan] == [
        "norm(Tensor out, Tensor(a!) x) -> ()",
        "rms_norm(Tensor(a!) out, Tensor x) -> ()",
        "wait(Tensor out, Tensor x) -> ()",
    ]
    assert not any(each.needs for each in plan)


def test_names_of_ones_own() -> None:
    plan = _plan("ns::norm(Tensor x) -> Tensor", "ns::norm.over(Tensor x, int n) -> Tensor", given={"norm": "my_norm"})
    assert [str(each.schema) for each in plan] == [
        "my_norm(Tensor x) -> Tensor",
        "my_norm.over(Tensor x, int n) -> Tensor",
    ]


def test_what_is_no_operator_is_in_the_table() -> None:
    text = shown([], [("m:has_cuda", "no tensor"), ("m:Eval", "a class"), ("m:version", "no tensor")])
    assert text.splitlines()[-2:] == ["no operator: m:has_cuda, m:version: no tensor", "no operator: m:Eval: a class"]


# The operators of an extension, and the entries that they become.
ENTRIES = CASES["entries"]


@pytest.mark.parametrize("schemas", ENTRIES)
def test_entries(schemas: str) -> None:
    plan = _plan(*schemas.split("; "), taken={"rms_norm"})
    assert "; ".join(str(each.schema) for each in plan) == ENTRIES[schemas]
    for each in plan:
        assert len(each.arguments) == len(read_schema(each.operator.schema).arguments)


def test_what_is_written_by_lists_of_optionals_is_told() -> None:
    (adopted,) = _plan("ns::advance(Tensor?[](a!) states) -> ()")
    assert adopted.schema and str(adopted.schema) == "advance(Tensor?[] states) -> ()"
    assert adopted.schema.arguments[0].is_written_untold


def test_methods_prefixes_and_types_without_an_entry() -> None:
    (method,) = _plan("ns::nms(Tensor dets, Tensor scores) -> Tensor", methods=None)
    assert str(method.schema) == "nms(Tensor self, Tensor scores) -> Tensor" and method.is_method
    (function,) = _plan("ns::nms(Tensor dets, Tensor input) -> Tensor", methods=["nms"])
    assert str(function.schema) == "nms(Tensor dets, Tensor input) -> Tensor" and not function.is_method
    assert "no method" in function.notes[0]
    (prefixed,) = _plan("ns::nms(Tensor dets) -> Tensor", prefix=True)
    assert str(prefixed.schema) == "ns_nms(Tensor dets) -> Tensor"
    (refused,) = _plan("ns::f(Tensor x) -> Dict(str, Tensor)")
    assert refused.refusal and not refused.is_entry
    (refused,) = _plan("ns::f(Tensor x, Dict(str, int) d) -> Tensor")
    assert refused.refusal == "no entry can have an argument of type Dict (`d`)" and not refused.is_entry


def test_overloads_that_fit_one_call() -> None:
    def shared(*printed: str) -> list[tuple[str, str, str]]:
        return ambiguous([(i, read_schema(f"ns::f.{each}")) for i, each in enumerate(printed)])

    assert shared("a(Tensor x, int n) -> Tensor", "b(Tensor x, float n) -> Tensor") == [("f", "a", "b")]
    assert shared("a(Tensor x, int n) -> Tensor", "b(Tensor x, Tensor n) -> Tensor") == []
    assert shared("a(Tensor x) -> Tensor", "b(Tensor x, int n) -> Tensor") == []
    assert shared("a(Tensor x) -> Tensor", "b(Tensor x, int n=1) -> Tensor") == [("f", "a", "b")]


def test_values_of_several_lines_are_replaced(tmp_path: Path) -> None:
    text = 'only = [\n  "a",  # first\n  "b",\n]  # these\nprefix = true  # yes\nwrites = {f = ["#"]}  # a mark\n'
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    asked = with_given(read_asked(tmp_path), {"only": ("c",), "own": ("f",)})
    assert asked.text(text) == f'own = ["f"]\nonly = ["a", "b", "c"]{text[text.index("  # these") :]}'
    other = replace(asked, writes={"g": []}).text(text)
    assert 'writes = {"g" = []}  # a mark\n' in other


@pytest.mark.parametrize(
    ("text", "fault"),
    [('names = {"*_norm" = "my_norm"}', "two operators cannot have one name"), ("names = {f = 'a b'}", "no name in")],
)
def test_names_that_cannot_be(text: str, fault: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=fault):
        read_asked(tmp_path)
    with pytest.raises(UsageError, match="patterns are for names without the namespace"):
        with_given(Asked(), {"except_": ("ns::*",)})


def test_file_of_what_is_asked(tmp_path: Path) -> None:
    asked = Asked(modules=("their.ops",), methods=("all",), prefix=True, writes={"f": ["out"]}, fakes={"g": "m:h"})
    (tmp_path / FILE).write_text(asked.text(), encoding="utf-8")
    assert read_asked(tmp_path) == asked
    (tmp_path / FILE).write_text('module = "x"\nprefix = "yes"\nmethods = "all"\n', encoding="utf-8")
    with pytest.raises(UsageError) as error:
        read_asked(tmp_path)
    lines = str(error.value).splitlines()
    assert [line.partition(f"{FILE}: ")[2] for line in lines[:3]] == [
        "no key `module`",
        "prefix is not true or false",
        "methods is not a list of names",
    ]


def test_changes() -> None:
    def line(name: str, schema: str, entry: str = "e") -> dict[str, str]:
        return {"full": name, "schema": schema, "signature": "s", "entry": entry}

    before = {"ns::f": line("ns::f", "1"), "ns::g": line("ns::g", "1")}
    told = changes(before, [line("ns::f", "2"), line("ns::h", "1")]).splitlines()
    assert told[1:] == ["  new: ns::h", "  gone: ns::g", "  ns::f: 1 is now 2"]
    assert changes(before, [line("ns::f", "1"), line("ns::g", "1")]) == ""
    asked = changes(before, [line("ns::f", "1", "other"), line("ns::g", "1", "")]).splitlines()
    assert asked[1:] == ["  ns::f: e is now other", "  ns::g: e is now no entry"]


def test_folder_of_others_is_refused(tmp_path: Path) -> None:
    assert record_of(tmp_path / "new") == {}
    (tmp_path / "pyproject.toml").touch()  # settings by hand
    assert record_of(tmp_path) == {}
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UsageError, match=r"this folder has files of its own, such as notes.txt"):
        record_of(tmp_path)


def test_package_is_asked_for_first(tmp_path: Path) -> None:
    """NATIVE may be the default then: a folder that is there."""
    (tmp_path / "notes.txt").touch()
    nothing: list[str] = []
    own = Namespace(modules=nothing, prefix=None, methods=None, only=nothing, except_=nothing, own=nothing)
    with pytest.raises(UsageError, match="no package is given"):
        adopt(asked(native=(tmp_path,)), own)


def test_what_was_left_out_is_named_if_nothing_is_left(tmp_path: Path, monkeypatch: Patch) -> None:
    left_out = [("their._C:version", "no argument is a tensor"), ("their._C:Box", "a class")]
    functions = {"mistakes": [], "needs": {}, "left_out": left_out, "notes": []}
    for name in ("find_environment", "layout_on", "base_of"):
        monkeypatch.setattr(f"graft.adopt.adopt.{name}", lambda *_: SimpleNamespace(base=tmp_path))
    monkeypatch.setattr("graft.adopt.adopt.ask", lambda *_: {"operators": [], "functions": functions})
    with pytest.raises(UsageError, match="their: importing it registers no operator") as error:
        _found(asked(native=(tmp_path,)), Asked(modules=("their",)), None)
    assert "no operator: their._C:version: no argument is a tensor" in error.value.what
    assert "no operator: their._C:Box: a class" in error.value.what


def test_written_folder_is_adopts_but_for_what_is_the_authors(tmp_path: Path) -> None:
    folder, facts = tmp_path / "ops", facts_of([], "")
    texts = {"native_functions.yaml": "[]\n", "derivatives.yaml": "# first\n", "old.cpp": "", FILE: "prefix = true\n"}
    write(folder, texts, {"written/data": b"\xff"}, facts, {})
    assert (folder / "old.cpp").exists()
    (folder / "derivatives.yaml").write_text("# mine\n", encoding="utf-8")
    del texts["old.cpp"]
    write(folder, {**texts, "derivatives.yaml": "# second\n"}, {"written/data": b"\xfe"}, facts, record_of(folder))
    left = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert sorted(left) == ["adopt.toml", "adopted.json", "derivatives.yaml", "native_functions.yaml", "written/data"]
    assert (left["derivatives.yaml"], left["written/data"]) == (b"# mine\n", b"\xfe")
    (folder / "mine.h").touch()
    with pytest.raises(UsageError, match=r"mine\.h: it is not adopt's"):
        write(folder, {**texts, "mine.h": ""}, {}, facts, record_of(folder))
    (folder / "native_functions.yaml").write_bytes(b"[]\r\n")
    with pytest.raises(UsageError, match=r"native_functions.yaml: it was edited since `graft adopt` wrote it"):
        record_of(folder)


def test_operators_are_named_with_or_without_their_namespace() -> None:
    asked = with_given(Asked(own=("nms", "ns::scan")), {"own": ("ns::nms", "lpc"), "methods": ("all",)})
    assert (asked.own, asked.methods) == (("nms", "scan", "lpc"), ("all",))


TREES = ("their-ext-1.0", "./their_ext", "~/their_ext", ".", "no/folder")


@pytest.mark.parametrize("word", ["their_ext", "their_ext.ops", "their-ext", "", *TREES])
def test_source_tree_has_a_name_that_no_module_has(word: str, tmp_path: Path, monkeypatch: Patch) -> None:
    """A module may have the name of a folder."""
    for name in ("their_ext", "their-ext-1.0"):
        (tmp_path / name).mkdir()
    monkeypatch.chdir(tmp_path)
    assert is_tree(word) == (word in TREES)


def test_comments_of_what_is_asked_stay() -> None:
    before = "# mine\nmodules = ['their']  # all of it\nown = []\n"
    text = Asked(modules=("their",), own=("f",), prefix=True).text(before)
    assert text == "prefix = true\n# mine\nmodules = ['their']  # all of it\nown = [\"f\"]\n"
