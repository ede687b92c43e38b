"""The skeleton of a new operator: torchgen accepts it, and invalid requests are rejected."""

from __future__ import annotations

import ast
import inspect
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from corpus import said_of
from graft.check.base import BaseOperators
from graft.core.errors import BuildError, UsageError
from graft.core.layout import REPOSITORY
from graft.new import skeleton
from graft.new.__main__ import scaffold
from graft.new.skeleton import appended, check_usage, refuse_existing, write_all

FUNCTIONS = "native_functions.yaml"
DERIVATIVES = "derivatives.yaml"

SCHEMAS = [
    ("plain", "inplace,out", "sc_a(Tensor self, Tensor other, *, float alpha=1.0) -> Tensor"),
    ("plain", "inplace,out", "sc_b(Tensor self, Tensor? w, Tensor[] parts, str mode='x: y', SymInt n=3) -> Tensor"),
    ("plain", "", "sc_c(Tensor self, Tensor?[] some, Scalar s, int[]? dims=None) -> Tensor[]"),
    ("plain", "out", "sc_d(Tensor self, *, Generator? generator=None) -> (Tensor low, Tensor high)"),
    ("plain", "", "sc_e(Tensor self, Tensor n, bool y=True) -> (float, int)"),
    ("plain", "", "sc_f(str message) -> ()"),
    (
        "plain",
        "",
        "sc_g(SymInt[] size, *, ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
        "bool? pin_memory=None) -> Tensor",
    ),
    ("plain", "inplace", "lerp.sc_h(Tensor self, str mode) -> Tensor"),
    ("pointwise", "", "sc_i(Tensor self) -> Tensor"),
    ("pointwise", "inplace,out", "sc_j.mine(Tensor self, Tensor a, Tensor b, *, Scalar alpha=1) -> Tensor"),
    ("pointwise", "out", "sc_k(Tensor x, Tensor y, str mode='x') -> Tensor"),
    ("plain", "out", "linalg_sc_o(Tensor self, int n) -> Tensor"),
    ("pointwise", "inplace,out", "special_sc_p(Tensor self) -> Tensor"),
    ("kernel", "out", "sc_q(Tensor self, Tensor? weight, *, float eps=1e-06) -> Tensor"),
    ("kernel", "", "sc_r(Tensor input, SymInt[] size, Scalar s=1) -> Tensor"),
    ("kernel", "", "sc_s(Tensor[] parts, Tensor x) -> (Tensor, Tensor)"),
    ("composite", "inplace,out", "sc_l(Tensor self, SymInt n) -> Tensor"),
    ("composite", "out", "sc_m(Tensor a, Tensor b) -> (Tensor, Tensor, Tensor)"),
    ("composite", "", "_sc_n(Tensor[] tensors, int dim=0) -> Tensor"),
]


def made(base: Path, folder: Path, schema: str, kind: str = "plain", variants: str = "") -> dict[str, str]:
    return scaffold(base, folder, schema, kind, set(filter(None, variants.split(","))))


@pytest.mark.parametrize(("kind", "variants", "schema"), SCHEMAS)
def test_a_new_operator_passes_the_check(
    base: Path, known: BaseOperators, tmp_path: Path, kind: str, variants: str, schema: str
) -> None:
    """Which compares kernels with their schemas. The test is Python."""
    texts = made(base, tmp_path, schema, kind, variants)
    assert said_of(tmp_path, known, texts) == []
    (test,) = (text for name, text in texts.items() if name.startswith("tests/"))
    names = [node.name for node in ast.parse(test).body if isinstance(node, ast.FunctionDef)]
    assert names == ["make", "reference", "test_values"]


@pytest.mark.parametrize(
    ("name", "module"), [("linalg_sc_q", "linalg"), ("fft_sc_q.mine", "fft"), ("sparse_sc_q", None), ("fftsc_q", None)]
)
def test_names_of_a_module_are_bound_there(base: Path, tmp_path: Path, name: str, module: str | None) -> None:
    (entry,) = yaml.safe_load(made(base, tmp_path, f"{name}(Tensor self) -> Tensor")[FUNCTIONS])
    assert entry.get("python_module") == module
    assert entry["variants"] == ("function" if module else "function, method")


@pytest.mark.parametrize(
    ("schema", "is_tested"),
    [
        ("sc_a(Tensor self) -> Tensor", True),
        ("_sc_a(Tensor self) -> Tensor", False),
        ("lerp.mine(Tensor self) -> Tensor", False),
        ("sc_a() -> ()", False),
    ],
)
def test_only_what_the_families_do_not_test_is_tested(base: Path, tmp_path: Path, schema: str, is_tested: bool) -> None:
    """PyTorch's own tests run on new public operators that take tensors."""
    texts = made(base, tmp_path, schema)
    (test,) = (text for name, text in texts.items() if name.startswith("tests/"))
    assert ("opcheck" in test, "in samples.py" in test) == (not is_tested, is_tested)
    assert (SAMPLES in texts) == is_tested


def test_an_operator_with_a_kernel_has_a_meta_function_and_an_own_backward(base: Path, tmp_path: Path) -> None:
    texts = made(base, tmp_path, "sc_q(Tensor self, Tensor? weight, *, float eps=1e-06) -> Tensor", "kernel")
    entries = {entry["func"].partition("(")[0]: entry for entry in yaml.safe_load(texts[FUNCTIONS])}
    assert entries["sc_q"]["dispatch"] == {"CPU": "sc_q_cpu", "Meta": "sc_q_meta"}
    func = "_sc_q_backward(Tensor grad_output, Tensor self, Tensor? weight, float eps) -> (Tensor, Tensor)"
    assert entries["_sc_q_backward"]["func"] == func
    formulas = {entry["name"].partition("(")[0]: entry for entry in yaml.safe_load(texts[DERIVATIVES])}
    call = "_sc_q_backward(grad, self, weight, eps)"
    assert formulas["sc_q"]["self, weight"] == f"grad.defined() ? {call} : std::tuple<Tensor, Tensor>()"
    assert formulas["_sc_q_backward"]["grad_output"] == 'not_implemented("_sc_q_backward")'
    assert '"supports_gradgrad": False' in texts[SAMPLES]
    one = yaml.safe_load(made(base, tmp_path, "sc_t(Tensor self) -> Tensor", "kernel")[DERIVATIVES])
    assert one[0]["self"] == "_sc_t_backward(grad, self)"


def test_a_pointwise_operator_has_a_stub_and_a_vectorized_source(base: Path, tmp_path: Path) -> None:
    schema = "sc_j.mine(Tensor self, Tensor a, Tensor b, *, Scalar alpha=1) -> Tensor"
    texts = made(base, tmp_path, schema, "pointwise", "inplace,out")
    assert "build_ternary_op(maybe_get_output(), self, a, b);" in texts["ScJMine.cpp"]
    assert "using sc_j_mine_fn = void (*)(TensorIteratorBase&, const Scalar&);" in texts["ScJMine.h"]
    kernel = texts["cpu/ScJMineKernel.cpp"]
    assert "[=](scalar_t self, scalar_t a, scalar_t b) -> scalar_t" in kernel
    vectors = ", ".join(f"vec::Vectorized<scalar_t> {name}" for name in ("self", "a", "b"))
    assert f"[=]({vectors}) -> vec::Vectorized<scalar_t>" in kernel


@pytest.mark.parametrize(
    ("schema", "kind", "variants", "message"),
    [
        ("sc_a(Tensor self, Tensr other) -> Tensor", "plain", "", "not a schema"),
        ("sc_a(Tensor self) - Tensor", "plain", "", "not a schema"),
        ("sc_a(Tensor self) -> Tensr", "plain", "", "not a schema"),
        ("sc_a(Tensor self) -> (Tensor, Tensr)", "plain", "", "not a schema"),
        ("sc a(Tensor self) -> Tensor", "plain", "", "not a schema"),
        ("add.Tensor(Tensor self) -> Tensor", "plain", "", r"yaml:\d+: the operator add.Tensor already exists"),
        ("add(Tensor self) -> Tensor", "plain", "", r"yaml:\d+: the operator add.\w+ already exists"),
        ("sc_a(Tensor(a) self) -> Tensor(a)", "plain", "", "returns a view"),
        ("sc_a_(Tensor(a!) self) -> Tensor(a!)", "plain", "", "mutates its arguments"),
        ("sc_a(Tensor self) -> (Tensor, Tensor)", "pointwise", "", "a pointwise operator computes one Tensor"),
        ("sc_a(Tensor[] self) -> Tensor", "pointwise", "", "a pointwise operator computes one Tensor"),
        ("sc_a(Tensor a, Tensor b, Tensor c, Tensor d) -> Tensor", "pointwise", "", "one Tensor from one to three"),
        ("sc_a(Tensor x) -> Tensor", "plain", "inplace", "in-place variant needs `Tensor self`"),
        ("sc_a(Tensor self) -> Tensor", "kernel", "inplace", "has no in-place variant"),
        ("sc_a(Tensor self) -> int", "plain", "out", "an out= variant returns Tensors"),
        ("sc_a(Tensor self) -> SymInt", "plain", "", "no Python function returns a SymInt"),
        ("sc_a(Tensor self, str[] names) -> Tensor", "plain", "", r"an argument of type str\[\]"),
    ],
)
def test_refused(base: Path, tmp_path: Path, schema: str, kind: str, variants: str, message: str) -> None:
    with pytest.raises(BuildError, match=message) as caught:
        made(base, tmp_path, schema, kind, variants)
    assert caught.value.todo
    if kind == "pointwise":
        assert caught.value.todo == "use KIND=plain"


def test_an_operator_of_the_folder_is_refused_with_its_place(base: Path, tmp_path: Path) -> None:
    (tmp_path / FUNCTIONS).write_text("# Mine.\n- func: sc_a(Tensor self) -> Tensor\n")
    with pytest.raises(BuildError, match=rf"{FUNCTIONS}:2: the operator sc_a already exists"):
        made(base, tmp_path, "sc_a(Tensor self) -> Tensor")
    made(base, tmp_path, "sc_a.mine(Tensor self) -> Tensor")


def test_process_says_what_torchgen_says(base: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "graft.new", str(base), str(tmp_path), "oops", "plain", ""]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    error = BuildError(**json.loads(done.stdout)["error"])
    assert "not a schema\n  oops" in error.what and "Invalid function schema" in error.cause and error.todo
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("schema", "kind", "variants", "message"),
    [
        (" ", "plain", "", "there is no schema"),
        ("a() -> ()", "fast", "", "KIND=fast: no such kind"),
        ("a() -> ()", "plain", "out,in", "VARIANTS=out,in: no such variant: in"),
    ],
)
def test_wrong_use(schema: str, kind: str, variants: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_usage(schema, kind, variants)


def test_existing_files_are_refused(base: Path, tmp_path: Path) -> None:
    (tmp_path / "A.cpp").write_text("mine")
    with pytest.raises(UsageError) as caught:
        refuse_existing(["A.cpp", "Resize.h", "B.cpp"], tmp_path, base / "torch/include")
    assert "A.cpp: the file already exists" in str(caught.value)
    assert "Resize.h: PyTorch has a header of this name" in str(caught.value)
    assert "B.cpp" not in str(caught.value)


def test_entries_go_behind_those_that_are_there(tmp_path: Path) -> None:
    path = tmp_path / FUNCTIONS
    entry = "- func: b() -> ()\n"
    assert appended(path, entry) == f"# yaml-language-server: $schema=.graft/native_functions.json\n\n{entry}"
    path.write_text("# Mine.\n- func: a() -> ()")
    assert yaml.safe_load(appended(path, entry)) == [{"func": "a() -> ()"}, {"func": "b() -> ()"}]
    for unfit in ("[{func: a() -> ()}]", "  - func: a() -> ()\n", "func: a\n", "- {"):
        path.write_text(unfit)
        with pytest.raises(BuildError, match=f"{FUNCTIONS}:1: entries cannot be appended"):
            appended(path, entry)


DECOMPOSITIONS = "python/_decomp/decompositions.py"


@pytest.mark.parametrize(
    ("schema", "registered", "parameters", "promoting"),
    [
        (
            "sc_a(Tensor self, Tensor other, *, float alpha=1.0) -> Tensor",
            "aten.sc_a",
            "self, other, *, alpha=1.0",
            "('self', 'other')",
        ),
        (
            "sc_a.mine(Tensor self, Scalar? s=None, bool b=True, str mode='x') -> Tensor",
            "aten.sc_a.mine, aten.sc_a.mine_out",
            "self, s=None, b=True, mode='x'",
            "('self',)",
        ),
    ],
)
def test_pointwise_operator_has_a_decomposition_to_write(
    base: Path, tmp_path: Path, schema: str, registered: str, parameters: str, promoting: str
) -> None:
    text = made(base, tmp_path, schema, "pointwise")[DECOMPOSITIONS]
    (function,) = ast.parse(text).body
    assert isinstance(function, ast.FunctionDef)
    registration, _, promotion = map(ast.unparse, function.decorator_list)
    assert registration == f"register_decomposition([{registered}])"
    assert f"type_promoting_args={promoting}, " in promotion
    assert ast.unparse(function.args) == parameters
    assert "# TODO: " in text and ast.unparse(function.body[-1]).startswith("raise NotImplementedError('sc_a")


def test_decomposition_goes_behind_those_that_are_there(base: Path, tmp_path: Path) -> None:
    path = tmp_path / DECOMPOSITIONS
    path.parent.mkdir(parents=True)
    first, second = "sc_a(Tensor self) -> Tensor", "sc_b(Tensor self) -> Tensor"
    path.write_text(made(base, tmp_path, first, "pointwise")[DECOMPOSITIONS])
    text = appended(path, made(base, tmp_path, second, "pointwise")[DECOMPOSITIONS])
    assert [node.name for node in ast.parse(text).body if isinstance(node, ast.FunctionDef)] == ["sc_a", "sc_b"]


@pytest.mark.parametrize("kind", ["plain", "composite"])
def test_other_kinds_have_no_decomposition(base: Path, tmp_path: Path, kind: str) -> None:
    assert DECOMPOSITIONS not in made(base, tmp_path, "sc_a(Tensor self) -> Tensor", kind)


SAMPLES = "samples.py"


@pytest.mark.parametrize(
    ("schema", "expected", "reference"),
    [
        (
            "sc_a(Tensor self, Tensor? w=None, int n=3) -> Tensor",
            ["make(2, 3), make(2, 3), {}"],
            "(self, w=None, n=3):",
        ),
        ("sc_a(Tensor self) -> Tensor", ["make(2, 3), {}", "make(0, 3), {}"], "(self):"),
        ("sc_a(Tensor[] parts, *, Scalar s) -> Tensor", ['[make(2, 3), make(2, 3)], {"s": 2}'], "(parts, *, s):"),
        ("sc_a(Tensor self, bool b=True) -> Tensor", ["make(2, 3), {}"], "(self, b=True):"),
        ("sc_a(Tensor self, int[2] size) -> Tensor", ["make(2, 3), [1, 1], {}"], "(self, size):"),
    ],
)
def test_samples_are_what_the_schema_asks_for(
    base: Path, tmp_path: Path, schema: str, expected: list[str], reference: str
) -> None:
    text = made(base, tmp_path, schema)[SAMPLES]
    assert "def sc_a(make):\n    # TODO" in text and "\n# def sc_a_reference(" in text
    assert reference in text
    assert all(line in text for line in expected)
    scope: dict[str, Callable[..., Iterator[object]]] = {}
    exec(text, scope)
    assert len(list(scope["sc_a"](lambda *shape: shape))) == 2


@pytest.mark.parametrize("before", ["", "def sc_c(make): ...\n", "import torch\nOPINFO = {'sc_c': {}}\n"])
def test_suggested_samples_of_two_operators(base: Path, tmp_path: Path, before: str) -> None:
    """What the comments suggest is valid Python, and the second operator keeps the properties of the first."""
    path = tmp_path / SAMPLES
    path.write_text(before)
    for schema in ("sc_a(Tensor self) -> Tensor", "sc_b(Tensor self, Tensor w, *, float p=0.5) -> Tensor"):
        path.write_text(appended(path, made(base, tmp_path, schema)[SAMPLES]))
        text = path.read_text()
        path.write_text(re.sub(r"^# (?!TODO|The )", "", re.sub("^#$", "", text, flags=re.M), flags=re.M))
    scope: dict[str, Any] = {"torch": SimpleNamespace(float="float", double="double")}
    exec(path.read_text().replace("import torch", ""), scope)
    assert {"sc_a", "sc_b"} <= scope["OPINFO"].keys()
    assert scope["OPINFO"]["sc_b"]["dtypes"] == {"float", "double"}
    assert list(inspect.signature(scope["sc_b_reference"]).parameters) == ["self", "w", "p"]
    assert next(scope["sc_a_errors"](lambda *shape: shape)) == (((2, 3), {}), "a part of the message")


def test_samples_that_are_there_are_kept(base: Path, tmp_path: Path) -> None:
    path, schema = tmp_path / SAMPLES, "sc_a.more(Tensor self) -> Tensor"
    path.write_text("def sc_b(make): ...")
    text = appended(path, made(base, tmp_path, schema)[SAMPLES])
    assert text.startswith("def sc_b(make): ...\n\n\ndef sc_a(make):\n")
    for there in ("def sc_a(make): ...", "sc_a = sc_b\n", "def sc_a(make:\n"):
        path.write_text(there)
        assert SAMPLES not in made(base, tmp_path, schema)


def test_all_files_are_written_or_none(tmp_path: Path) -> None:
    kept, native = tmp_path / "kept", tmp_path / "native"
    kept.write_text("before")
    with pytest.raises(OSError):
        write_all(tmp_path, {"kept": "after", "native/cpu/A.cpp": "new", "kept/below-a-file": "fails"})
    assert kept.read_text() == "before"
    assert not native.exists()
    write_all(tmp_path, {"kept": "after", "native/cpu/A.cpp": "new"})
    assert (kept.read_text(), (native / "cpu/A.cpp").read_text()) == ("after", "new")


def printed(folder: Path, answer: dict[str, str], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run `make new-op` with the texts that torchgen's process returned."""
    done = SimpleNamespace(returncode=0, stdout=json.dumps(answer))
    base = SimpleNamespace(tree=folder, include=folder)
    for name, value in {"run_with_torchgen": done, "get_base": base, "pin_of": None}.items():
        monkeypatch.setattr(skeleton, name, lambda *_, value=value: value)
    layout = SimpleNamespace(native=folder)
    request: Any = SimpleNamespace(
        schema="sc_b() -> ()", kind=kind, variants="", project="", layout=layout, wheel=None, pin=""
    )
    skeleton.new_op(request)


def test_todos_of_other_operators_are_not_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / DERIVATIVES).write_text("# TODO: theirs\n- name: sc_a() -> ()\n  self: grad\n")
    answer = {DERIVATIVES: "# TODO: write it\n- name: sc_b() -> ()\n  self: grad\n", "B.cpp": "// TODO\n// TODO\n"}
    printed(tmp_path, answer, "plain", monkeypatch)
    assert capsys.readouterr().err.splitlines()[:-1] == [
        f"  added to  {tmp_path}/{DERIVATIVES}",
        f"  wrote     {tmp_path}/B.cpp",
        "3 places say TODO:",
        f"  {tmp_path}/{DERIVATIVES}:5",
        f"  {tmp_path}/B.cpp:1, 2",
    ]


@pytest.mark.parametrize(
    ("schema", "kind", "is_said"),
    [
        ("sc_b(Tensor self) -> (Tensor, Tensor)", "kernel", True),
        ("sc_b(Tensor[] parts) -> Tensor", "kernel", True),
        ("_sc_b(Tensor self) -> Tensor", "kernel", True),
        ("sc_b(Tensor self) -> Tensor", "kernel", False),
        ("sc_b(Tensor self) -> int", "kernel", False),
        ("sc_b(Tensor self) -> (Tensor, Tensor)", "plain", False),
    ],
)
def test_kernel_without_a_backward_is_told(
    base: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    schema: str,
    kind: str,
    is_said: bool,
) -> None:
    printed(tmp_path, made(base, tmp_path, schema, kind), kind, monkeypatch)
    assert ("has no gradient: KIND=kernel writes" in capsys.readouterr().err) == is_said
