"""Schemas of pybind11 functions: docstrings as pybind11 2 and 3 write them, and the schemas that are meant."""

from __future__ import annotations

import ast
import mmap
import sys
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from graft import adopt
from graft.adopt.brackets import split
from graft.adopt.pybind import PybindChoices, PybindFindings, registered
from graft.adopt.pybind_found import FoundFunction, FoundModules, found_in, modules_of, not_imported
from graft.adopt.pybind_signatures import signatures
from helpers import Patch, beside, write

CASES = beside(__file__)

_MODE = "their._C.Mode"


def _found(*docs: str) -> FoundModules:
    functions = tuple(FoundFunction("their._C", doc.partition("(")[0], doc + "\n") for doc in docs)
    return FoundModules(functions, enums=(_MODE,))


def _schemas(*docs: str, choices: PybindChoices | None = None) -> list[str]:
    return [each.schema for each in registered("their", _found(*docs), choices).operators]


# How pybind11 2.10, 2.13 and 3.0 write a type that schemas have.
_TYPES = CASES["types"]


@pytest.mark.parametrize(("schema", "written"), [(schema, each) for schema in _TYPES for each in _TYPES[schema]])
def test_types_of_each_generation(schema: str, written: str) -> None:
    for tensor in _TYPES["Tensor"]:
        assert _schemas(f"f(x: {tensor}, y: {written}) -> {tensor}") == [f"f(Tensor x, {schema} y) -> Tensor"]


@pytest.mark.parametrize("optional", _TYPES["Tensor?"])
@pytest.mark.parametrize(("all_of", "many"), [("Tuple", "List"), ("tuple", "list")])
def test_results(all_of: str, many: str, optional: str) -> None:
    results = f"{all_of}[torch.Tensor, {many}[torch.Tensor], float, int, {optional}]"
    assert _schemas(f"f(x: torch.Tensor) -> {results}") == ["f(Tensor x) -> (Tensor, Tensor[], float, int, Tensor?)"]
    assert _schemas("f(x: torch.Tensor) -> float") == ["f(Tensor x) -> float"]


@pytest.mark.parametrize(("arguments", "schema"), CASES["arguments"])
def test_arguments(arguments: str, schema: str) -> None:
    assert _schemas(f"f({arguments}) -> torch.Tensor") == [f"f({schema}) -> Tensor"]


_OVERLOADED = CASES["overloaded"]


def test_overloads() -> None:
    found = registered("their", _found(_OVERLOADED))
    assert [each.schema for each in found.operators] == [
        "over(Tensor arg0) -> Tensor",
        "over.Tensor_Scalar(Tensor arg0, Scalar arg1) -> Tensor",  # the function chooses between int and float
    ]
    assert [reason for _, reason in found.left_out] == ["arg1: dict[str, int] is no type of schemas"]
    head = "over()\nOverloaded function.\n\n1. over(x: torch.Tensor, a: "
    doc = head + "float, b: int) -> int\n\n2. over(x: torch.Tensor, a: int, b: float) -> int"
    assert _schemas(doc) == ["over(Tensor x, Scalar a, Scalar b) -> int"]
    doc = head + "float) -> float\n\n2. over(x: torch.Tensor, a: int) -> int"  # other results; a float takes an int
    assert _schemas(doc) == ["over(Tensor x, int a) -> int", "over.Tensor_float(Tensor x, float a) -> float"]
    doc = head + "list[float]) -> int\n\n2. over(x: torch.Tensor, a: list[int]) -> int"
    assert _schemas(doc) == ["over(Tensor x, int[] a) -> int", "over.Tensor_floatList(Tensor x, float[] a) -> int"]
    assert (
        found.operators[0].doc
        == "The first.\n\n1. no overload\n2. over(neither is this)\n3. over(arg0: torch.Tensor) -> int"
    )


@pytest.mark.parametrize(("doc", "reason"), CASES["left_out"])
def test_left_out(doc: str, reason: str) -> None:
    found = registered("their", _found(doc))
    assert not found.operators and not found.text, found.operators
    ((name, said),) = found.left_out
    assert name == "their._C:" + doc.partition("(")[0] and reason in said


def test_writes_and_fakes() -> None:
    docs = ("f(x: torch.Tensor, out: torch.Tensor, more: list[torch.Tensor], state: Optional[torch.Tensor]) -> None",)
    unsaid = registered("their", _found(*docs))
    assert unsaid.operators[0].needs == ("writes",) and not unsaid.text
    said = registered("their", _found(*docs), PybindChoices(writes={"f": ["out", "more", "state"]}))
    assert said.operators[0].schema == "f(Tensor x, Tensor(a!) out, Tensor(b!)[] more, Tensor(c!)? state) -> ()"
    assert said.operators[0].needs == () and "Tensor(a!)" in said.text and not said.mistakes
    reads = registered("their", _found(*docs), PybindChoices(writes={"f": []}))
    assert reads.operators[0].needs == () and "(a!)" not in reads.text and reads.text
    status = registered("their", _found("f(x: torch.Tensor, out: torch.Tensor) -> int"))
    assert status.operators[0].needs == ("writes", "fake") and not status.text
    result = "g(x: torch.Tensor) -> torch.Tensor"
    unsaid = registered("their", _found(result))
    assert unsaid.operators[0].needs == ("pure", "fake") and unsaid.text  # it may write its argument, too
    for fakes in ({"g": "their.fakes:g"}, {"*": "their.fakes"}):
        faked = registered("their", _found(result), PybindChoices(writes={"*": []}, fakes=fakes))
        assert faked.operators[0].needs == () and "their.fakes:g" in faked.text


def test_functions_of_two_modules_are_chosen_by_their_operators() -> None:
    doc = "forward(x: torch.Tensor) -> torch.Tensor"
    found = FoundModules(tuple(FoundFunction(f"their.{name}", "forward", doc) for name in ("conv", "pool")))
    assert [each.name for each in registered("their", found, PybindChoices(only=["conv_*"])).operators] == [
        "conv_forward"
    ]


def test_what_returns_nothing_needs_no_fake() -> None:
    doc = "f(x: torch.Tensor, out: torch.Tensor) -> None"
    for fakes, fake in ({"*": "their.fakes"}, ""), ({"f": "their.fakes:f"}, "their.fakes:f"):
        (operator,) = registered("their", _found(doc), PybindChoices(writes={"f": ["out"]}, fakes=fakes)).operators
        assert operator.fake == fake


def test_functions_that_are_wanted() -> None:
    docs = [f"{name}(x: torch.Tensor) -> torch.Tensor" for name in ("norm", "rms_norm", "wait")]

    def names(**choices: list[str]) -> list[str]:
        return [each.name for each in registered("their", _found(*docs), PybindChoices(**choices)).operators]

    assert names(only=["*norm"]) == ["norm", "rms_norm"]
    assert names(only=["*norm"], except_=["rms_*"]) == ["norm"]
    ((place, reason),) = registered("their", _found(docs[0]), PybindChoices(except_=["norm"])).left_out
    assert place == "their._C:norm" and reason == "left out, as adopt.toml says"


def test_mistakes() -> None:
    choices = PybindChoices(writes={"f": ["y"], "h": [], "f*": ["z", "x"]}, fakes={"f": "their fakes"})
    assert registered("their", _found("f(x: torch.Tensor) -> torch.Tensor"), choices).mistakes == (
        "writes: no function is called h",
        "writes: f has no argument y, only x",
        "writes: f* has no argument z, only x",
        "fakes: f: write package.module:function instead of their fakes",
    )


def _calls(found: PybindFindings) -> list[tuple[list[object], dict[str, object]]]:
    """Return the arguments of the calls at the end of the text."""
    statements = [each.value for each in ast.parse(found.text).body if isinstance(each, ast.Expr)][1:]
    calls = [each for each in statements if isinstance(each, ast.Call)]
    named = [{each.arg: ast.literal_eval(each.value) for each in call.keywords} for call in calls]
    return [(list(map(ast.literal_eval, call.args)), names) for call, names in zip(calls, named, strict=True)]


def test_text() -> None:
    found = _found("f(x: torch.Tensor, m: their._C.Mode, *, k: list[their._C.Mode]) -> torch.Tensor")
    made = registered("their.package", found)
    given = ["f(Tensor x, int m, *, int[] k) -> Tensor", "their._C:f"]
    assert _calls(made) == [(given, {"backends": ["CPU"], "enums": {1: "their._C:Mode", "k": "their._C:Mode"}})]
    assert 'NAMESPACE = "their_package"\n' in made.text and "Composite" not in made.text
    assert made.text == registered("their.package", found).text
    compile(made.text, "their.py", "exec")
    cuda = FoundModules(found.functions, found.enums, cuda=True)
    assert _calls(registered("their", cuda))[0][1]["backends"] == ["CPU", "CUDA"]
    chosen = registered("their", cuda, PybindChoices(namespace="other", backends=("XPU",)))
    assert _calls(chosen)[0][1]["backends"] == ["XPU"] and 'NAMESPACE = "other"\n' in chosen.text


def test_names() -> None:
    doc = "forward(x: torch.Tensor) -> torch.Tensor"
    functions = (FoundFunction("their._a", "forward", doc), FoundFunction("their.b", "forward", doc))
    found = registered("their", FoundModules((*functions, FoundFunction("their.b", "g", doc.replace("forward", "g")))))
    assert [each.name for each in found.operators] == ["a_forward", "b_forward", "g"]
    taken = registered("their", FoundModules(functions[:1]), existing=["other::forward.out"])
    assert not taken.operators and "registers an operator of this name" in taken.left_out[0][1]


def test_names_do_not_depend_on_what_is_built_for_cuda() -> None:
    """One operator calls the functions of both modules, and has the name that it has without the one for CUDA."""
    doc = "sort(x: torch.Tensor) -> torch.Tensor\n\nFor "
    cpu, cuda = (FoundFunction(f"their.sort_{each}", "sort", doc + each) for each in ("cpu", "cuda"))
    alone, both = (registered("their", FoundModules(each)) for each in ((cpu,), (cpu, cuda)))
    assert [each.schema for each in alone.operators] == [each.schema for each in both.operators]
    ((given, named),) = _calls(both)
    assert given == ["sort(Tensor x) -> Tensor", "their.sort_cpu:sort"]
    assert named == {"backends": ["CPU", "CUDA"], "for_cuda": "their.sort_cuda:sort"}
    assert not both.left_out and not both.notes


def test_names_that_depend_on_what_is_built_are_told() -> None:
    docs = {"cpu": "sort(x: torch.Tensor) -> torch.Tensor", "cuda": "sort(x: torch.Tensor, n: int) -> torch.Tensor"}
    found = registered("their", FoundModules(tuple(FoundFunction(f"their.{n}", "sort", d) for n, d in docs.items())))
    (note,) = found.notes
    assert note.startswith("cpu_sort, cuda_sort: these names begin with") and "names = {cpu_sort = " in note


@pytest.fixture
def child(monkeypatch: Patch) -> ModuleType:
    """The program that runs with the user's Python, here with a torch that has nothing."""
    torch = ModuleType("torch")
    torch.__path__ = []
    monkeypatch.setitem(sys.modules, "torch", torch)
    spec = spec_from_file_location("child", Path(adopt.__file__).parent / "child.py")
    assert spec and spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_fakes_may_be_in_the_adopted_folder(child: ModuleType, monkeypatch: Patch, tmp_path: Path) -> None:
    write(tmp_path, {"python/my_fakes_of_a_test.py": ""})

    def mistakes(fakes: str) -> list[str]:
        told = PybindFindings(f"import {fakes}", (), ())
        modules = SimpleNamespace(registered=lambda *_: told, PybindChoices=dict, found_in=tuple)
        modules.modules_of = modules.not_imported = lambda *_: []
        monkeypatch.setattr(child, "beside", lambda _: modules)
        said: list[str] = child.register_functions(["their"], (), {}, (), str(tmp_path / "python"))["mistakes"]
        return said

    assert mistakes("torch.my_fakes_of_a_test") == []
    sys.modules.pop("torch.my_fakes_of_a_test")
    (said,) = mistakes("my_fakes_of_a_test")
    assert said.startswith("fakes: No module named 'my_fakes_of_a_test': ") and f"a file in {tmp_path}/python" in said


def test_split() -> None:
    assert split("a, [b, c], '(', f(g, h) -> {i, j}") == ["a", "[b, c]", "'('", "f(g, h) -> {i, j}"]
    assert split("") == []
    assert split(r"'\'', '\\', a") == [r"'\''", r"'\\'", "a"]
    assert signatures("f", "f() -> None") and not signatures("f", "g() -> None")


def test_found(monkeypatch: Patch, tmp_path: Path) -> None:
    """Modules are told by their loader, functions by what they are bound to; here the interpreter's own stand in."""
    spec = ModuleSpec("their._C", ExtensionFileLoader("their._C", str(tmp_path / "_C.so")))
    package, module, other = ModuleType("their"), ModuleType("their._C"), ModuleType("their.plain")
    package.__path__ = [str(tmp_path)]
    module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, str(tmp_path / "_C.so")
    (tmp_path / "_C.so").write_bytes(b"\x7fELF\0PyInit__C\0.nv_fatbin\0")
    (tmp_path / "_other.so").write_bytes(b"\x7fELF\0PyInit__other\0")
    (tmp_path / "_kernels.so").write_bytes(b"\x7fELF\0")
    monkeypatch.setattr("graft.adopt.pybind_found._OWNERS", ("module",))
    module.__dict__["f"] = other.__dict__["f"] = len  # bound to the module builtins
    module.__dict__["Mode"] = type("Mode", (), {"__members__": {}, "__module__": "their._C"})
    module.__dict__["Box"] = type("Box", (), {"__module__": "their._C"})
    for each in (package, module, other):
        monkeypatch.setitem(sys.modules, each.__name__, each)
    assert modules_of("their") == ["their._C"]
    assert not_imported("their") == ["their._other"]
    found = found_in(["their._C"])
    assert [(each.place, each.doc) for each in found.functions] == [("their._C:f", len.__doc__)]
    assert found.enums == ("their._C.Mode",) and found.classes == ("their._C.Box",) and found.cuda


def test_device_code_is_in_the_library_that_a_stub_opens(monkeypatch: Patch, tmp_path: Path) -> None:
    """A tree's trial build has stubs in the extensions' places."""
    stub, library = tmp_path / "their/_C.so", tmp_path / "trial/extensions/0a1b/their/_C.so"
    write(tmp_path, {"their/_C.so": "", "trial/extensions/0a1b/their/_C.so": "\0.nv_fatbin\0"})
    module = ModuleType("their._C")
    module.__file__ = str(stub)
    monkeypatch.setitem(sys.modules, "their._C", module)
    assert not found_in(["their._C"]).cuda  # the library is there, but not loaded
    with library.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ):
        assert found_in(["their._C"]).cuda
