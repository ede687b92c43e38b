"""Docstrings: their signature lines compared with upstream's handwritten ones, and the files they are appended to."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from graft.codegen.__main__ import load_operators
from graft.codegen.describe import describe, names_in, signature_line
from graft.codegen.description import NAMESPACES, Description
from graft.codegen.operators import Operators
from graft.compose.appending import appended_texts
from graft.compose.composition import Composition
from graft.compose.docs import docstring, docstring_texts
from graft.core.errors import BuildError
from graft.inputs.merge import MARK
from graft.inputs.native import DOCS, NativeFolders, load_natives
from helpers import write

PROBES = """
- func: graft_probe(Tensor self, Scalar factor=2, *, ScalarType? dtype=None) -> Tensor
  variants: function, method
- func: graft_probe_(Tensor(a!) self, Scalar factor=2) -> Tensor(a!)
  variants: method
- func: graft_probe.word(Tensor self, str word) -> (Tensor low, Tensor high)
- func: fft_graft_probe(Tensor self, int n) -> Tensor
  python_module: fft
- func: graft_gate(Tensor input, int? rows, float rate=0.5) -> Tensor
  python_module: nn
- func: graft_alone_(Tensor(a!) self) -> Tensor(a!)
  variants: method
- func: graft_method(Tensor self) -> Tensor
  variants: method
- func: lerp.graft_word(Tensor self, str word) -> Tensor
"""


def upstream_lines(stub: Path) -> dict[str, set[str]]:
    """Return the signature lines of the docstrings in one of the base's stub files, by function."""
    found: dict[str, set[str]] = {}
    for node in ast.walk(ast.parse(stub.read_text())):
        if isinstance(node, ast.FunctionDef) and (doc := ast.get_docstring(node)):
            lines = {line for line in doc.splitlines() if line.startswith(f"{node.name}(")}
            found.setdefault(node.name, set()).update(lines)
    return found


# Functions whose documented parameters differ from the real ones, in 2.13.0.
OTHERWISE = {
    "two overloads in one line": """arange argsort bartlett_window blackman_window cumulative_trapezoid div divide
        dsplit eye gradient hann_window histogram hsplit kaiser_window quantized_batch_norm rand rand_like randint
        randint_like randn randn_like randperm round sort squeeze tensor_split trapezoid trapz unsafe_split vsplit""",
    "other names": """_assert_async broadcast_to cholesky_inverse cholesky_solve concatenate dequantize lu_solve
        matrix_exp orgqr ormqr result_type searchsorted smm triangular_solve true_divide""",
    "what a default stands for, not the default": """amax amin kthvalue nan_to_num quantized_max_pool1d
        quantized_max_pool2d roll std std_mean topk var var_mean""",
    "parameters left out, or in another order": "argmax hash_tensor histogramdd nansum",
    "an annotation without Optional": "qr",
}
# Parameters that upstream omits or reorders, with the defaults that their None stands for.
OPTIONS = {"out", "dtype", "layout", "device", "pin_memory", "requires_grad", "memory_format"}


def parameters(line: str) -> tuple[object, ...]:
    """Parse names and defaults of the parameters in a signature line, without types, results and ``OPTIONS``."""
    text = (line.partition("(")[2].rpartition(") -> ")[0] or line.partition("(")[2].rpartition(")")[0]).replace(
        "\\", ""
    )
    positional: list[tuple[str, str | None]] = []
    named: list[tuple[str, str | None]] = []
    into = positional
    for part in re.split(r",(?![^\[(]*[\])])", text):
        found = re.fullmatch(r"(\w*)(?::\s*([^=]*?))?(?:\s*=\s*(.*))?", part.strip(" *"))
        if not found:  # an annotation of several types
            return (line,)
        name, kind, default = found.groups()
        if part.strip() == "*":
            into = named
        elif name and name not in OPTIONS:
            into.append((name, default or ("None" if "Optional" in (kind or "") else None)))
    return tuple(positional), frozenset(named)


def test_signature_lines_are_those_upstream_writes(everything: Operators, base: Path) -> None:
    """Upstream writes them by hand. Parameters are compared, and whole lines if upstream takes no liberties."""
    theirs = upstream_lines(base / "torch/_C/_VariableFunctions.pyi")
    namespace = next(namespace for namespace in NAMESPACES if namespace.name == "torch")
    names = names_in(everything.new, namespace)
    ours = {name: {f"{name}{signature_line(group)}" for group in groups} for name, groups in names.items()}
    compared = [name for name in ours if theirs.get(name)]
    assert len(compared) > 400
    differing = {name for name in compared if not set(map(parameters, ours[name])) & set(map(parameters, theirs[name]))}
    if (base / "torch/version.py").read_text().count("'2.13.0"):
        assert differing == {name for names in OTHERWISE.values() for name in names.split()}
    for name in ("digamma", "sub", "clamp", "cumsum", "aminmax", "frexp", "vander", "std", "is_signed"):
        assert name in ours, name
    assert ours["frexp"] == theirs["frexp"] == {"frexp(input, *, out=None) -> (Tensor mantissa, Tensor exponent)"}
    assert ours["sub"] & theirs["sub"] == {"sub(input, other, *, alpha=1, out=None) -> Tensor"}


@pytest.fixture
def native(tmp_path: Path) -> NativeFolders:
    """A folder with docstrings for two of ``PROBES``."""
    files = {
        "native_functions.yaml": PROBES,
        "python/nn/functional.py": "of_the_folder = 1\n",
        f"{DOCS}/graft_probe.rst": 'Says "it" \\with a backslash\\.\n',
        f"{DOCS}/graft_alone.rst": "Has no other form.\n",
        f"{DOCS}/fft_graft_probe.rst": 'Holds """quotes""".\n',
    }
    return load_natives([write(tmp_path / "native", files)])


@pytest.fixture
def description(base: Path, native: NativeFolders, tmp_path: Path) -> Description:
    """The generator's description of ``PROBES``, as others read it."""
    written = describe(load_operators(base, native, tmp_path / "wheel").new)
    (tmp_path / "operators.json").write_text(written.dump())
    read = Description.load(tmp_path / "operators.json")
    assert read.dump() == written.dump()
    return read


def literals(text: str) -> dict[str, str]:
    """Return the docstrings in calls in a file, by the text of the documented object."""
    calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
    return {ast.unparse(call.args[0]): ast.literal_eval(call.args[1]).strip() for call in calls}


def test_docstrings_go_behind_the_files_that_upstream_has_them_in(
    native: NativeFolders, description: Description
) -> None:
    behind = docstring_texts({bound: docstring(bound, native) for bound in description.bound})
    modules = {"torch/fft/__init__.py", "torch/nn/functional.py", "torch/nn/functional.pyi"}
    assert set(behind) == {"torch/_torch_docs.py", "torch/_tensor_docs.py", *modules}
    appended = appended_texts(native, description)
    assert all(appended[name].startswith(text) for name, text in behind.items())
    behind_functional = behind["torch/nn/functional.py"]
    assert appended["torch/nn/functional.py"] == f"{behind_functional}\nof_the_folder = 1\n"
    functions, methods = literals(behind["torch/_torch_docs.py"]), literals(behind["torch/_tensor_docs.py"])
    assert functions == {
        "torch.graft_probe": "graft_probe(input, factor=2, *, dtype=None) -> Tensor\n"
        'graft_probe(input, word) -> (Tensor low, Tensor high)\n\nSays "it" \\with a backslash\\.',
    }
    assert methods["'graft_probe'"] == (
        "graft_probe(factor=2, *, dtype=None) -> Tensor\n\nSee :func:`torch.graft_probe`"
    )
    assert (
        methods["'graft_probe_'"]
        == "graft_probe_(factor=2) -> Tensor\n\nIn-place version of :meth:`~Tensor.graft_probe`"
    )
    assert methods["'graft_alone_'"] == "graft_alone_() -> Tensor\n\nHas no other form."
    assert methods["'graft_method'"].startswith("graft_method() -> Tensor\n\nAn operator that was added")
    fft = behind["torch/fft/__init__.py"]
    assert literals(behind["torch/fft/__init__.py"]) == {
        "_fft.fft_graft_probe": 'graft_probe(input, n) -> Tensor\n\nHolds """quotes""".'
    }
    assert "graft_probe = _add_docstr(" in fft
    assert '__all__ += ["graft_probe"]' in fft
    gate = literals(behind["torch/nn/functional.py"])["_nn.graft_gate"]
    assert gate.startswith("graft_gate(input, rows, rate=0.5) -> Tensor\n\nAn operator that was added")
    arguments = "    input (Tensor)\n    rows (int or None)\n    rate (float, optional): Default: ``0.5``."
    assert gate.endswith(f"Args:\n{arguments}")
    assert "from torch._C._nn import graft_gate as graft_gate" in behind["torch/nn/functional.pyi"]


def test_line_with_the_name_of_an_argument_is_what_the_schema_tells_of_it(
    native: NativeFolders, description: Description
) -> None:
    """Like `{out}` in PyTorch's own docstrings; other lines are not changed."""
    text = "Scales \\text{input}.\n\nArgs:\n    {input}\n    {factor}\n    {unknown}\n    dtype: {dtype}\n"
    (native.folders[0].path / DOCS / "graft_probe.rst").write_text(text)
    bound = next(bound for bound in description.bound if bound.public == "torch.graft_probe")
    filled = text.replace("    {input}", "    input (Tensor)")
    filled = filled.replace("    {factor}", "    factor (Number, optional): Default: ``2``.")
    assert docstring(bound, native).partition("\n\n")[2] == filled.strip()


def test_text_that_would_stop_torch_stops_the_build(native: NativeFolders, description: Description) -> None:
    (native.folders[0].path / DOCS / "graft_alone.rst").write_text("Has a NUL: \0.\n")
    with pytest.raises(BuildError, match=r"torch/_\w+_docs\.py: the text for it is not Python: .*null bytes"):
        appended_texts(native, description)


def test_stubs_hold_the_docstrings(base: Path, native: NativeFolders, description: Description, tmp_path: Path) -> None:
    composition = Composition(base, {}, tmp_path / "wheel")
    composition.insert(native, description)
    stub = ast.parse(composition.text("torch/_C/_VariableFunctions.pyi") or "")
    (first, second) = (n for n in stub.body if isinstance(n, ast.FunctionDef) and n.name == "graft_probe")
    assert "Says" in (ast.get_docstring(first) or "")
    assert ast.get_docstring(first) == ast.get_docstring(second)


def test_layers_of_a_file_follow_each_other(tmp_path: Path) -> None:
    write(tmp_path, {"tree/a.py": "upstream\n", "tree/c.py": "other\n", "generated/d.py": "generated\n"})
    composition = Composition(tmp_path / "tree", {"a.py": b"patched\n"}, tmp_path / "generated")
    composition.append({"a.py": "one\n", "b.py": "new\n"})
    composition.append({"a.py": "two\n"})
    assert composition.text("a.py") == f"patched\n{MARK}one\n{MARK}two\n"
    assert [composition.text(name) for name in ("b.py", "c.py", "d.py", "e.py")] == [
        *("new\n", "other\n", "generated\n"),
        None,
    ]
    assert set(composition.files) == {"a.py", "b.py", "d.py"}  # what the base already has is not included
