"""Files of the real torch that a checkout changes, with the texts that every build appends."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from graft.checkout.python import taken
from graft.codegen.__main__ import load_operators
from graft.codegen.describe import describe
from graft.compose.appending import appended_texts, our_files
from graft.compose.composition import Composition
from graft.inputs.merge import MARK
from graft.inputs.native import NativeFolders, load_natives
from graft.inputs.python_names import names_defined, names_needed
from helpers import write

ENTRIES = """
- func: graft_probe(Tensor self, int? rows) -> Tensor
- func: special_graft_probe(Tensor self) -> Tensor
  python_module: special
"""
FUNCTIONS, SPECIAL, OVERRIDES = "torch/_torch_docs.py", "torch/special/__init__.py", "torch/overrides.py"

# What a branch with these operators edits by hand.
EDITS = {
    FUNCTIONS: [
        (
            "add_docstr(\n    torch.absolute,",
            'add_docstr(\n    torch.graft_probe,\n    r"""\ngraft_probe(input, rows) -> Tensor\n\nProbes it.\n\nArgs:\n'
            '    {input}\n""".format(**common_args),\n)\n\nadd_docstr(\n    torch.absolute,',
        ),
        ("Computes the absolute value of each element", "Computes |x| of each element"),
    ],
    SPECIAL: [
        ('    "airy_ai",\n', '    "airy_ai",\n    "graft_probe",\n'),
        (
            "entr = _add_docstr(",
            'graft_probe = _add_docstr(\n    _special.special_graft_probe,\n    r"""\ngraft_probe(input) -> Tensor\n'
            'Probes, specially.\n""",\n)\n\nentr = _add_docstr(',
        ),
    ],
    OVERRIDES: [
        ("torch.abs: lambda input, out=None: -1,", "torch.abs: lambda input, out=None: -2,"),
        ("torch.abs:", "torch.graft_probe: lambda input, rows: -1,\n        torch.abs:"),
    ],
}


def edited(base: Path, name: str) -> str:
    text = (base / name).read_text()
    for old, new in EDITS.get(name, [("\n\n\ndef ", "\n\n\n# An edit.\nof_the_checkout = 1\n\n\ndef ")]):
        assert old in text, f"{name}: {old}"
        text = text.replace(old, new, 1)
    return text


@pytest.fixture(scope="module")
def overlay(base: Path) -> dict[str, bytes]:
    """All files that texts are appended to, as the checkout has them, and the docstrings of its operators."""
    added = ("graft_probe", "special_graft_probe")
    found: dict[str, bytes] = {}
    for name in [*EDITS, *(name for name in our_files() if (base / name).is_file() and name not in EDITS)]:
        before = (base / name).read_bytes()
        one = taken(name, before, edited(base, name).encode(), before, added, ())
        assert one.whole is not None
        found |= {name: one.whole} | {place: text.encode() for place, text in one.docs.items()}
    return found


@pytest.fixture
def natives(overlay: dict[str, bytes], tmp_path: Path) -> NativeFolders:
    docs = {name: content.decode() for name, content in overlay.items() if name.startswith("docs/")}
    return load_natives([write(tmp_path / "derived", {"native_functions.yaml": ENTRIES, **docs})])


@pytest.fixture
def composed(base: Path, overlay: dict[str, bytes], natives: NativeFolders, tmp_path: Path) -> Composition:
    description = describe(load_operators(base, natives, tmp_path / "wheel").new)
    composition = Composition(base, {name: overlay[name] for name in text_names(overlay)}, tmp_path / "none")
    composition.insert(natives, description)
    composition.append(appended_texts(natives, description))
    return composition


def text_names(overlay: dict[str, bytes]) -> list[str]:
    return [name for name in overlay if name.startswith("torch/")]


def test_whole_files_keep_what_is_appended(base: Path, overlay: dict[str, bytes], composed: Composition) -> None:
    """The lines of the checkout's file come first, so errors name them."""
    assert {*our_files()} - {*overlay} == {"torch/_graft.py"}
    for name in text_names(overlay):
        text = composed.text(name) or ""
        whole, mark, appended = text.partition(MARK)
        assert mark and whole == overlay[name].decode() and whole.count("\n") == edited(base, name).count("\n")
        compile(text, name, "exec", dont_inherit=True)
        assert not names_needed(appended) - names_defined(whole)


def documented(text: str) -> list[str]:
    calls = [each for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Call)]
    return [ast.unparse(each.args[0]) for each in calls if ast.unparse(each.func) in ("add_docstr", "_add_docstr")]


@pytest.mark.parametrize(
    ("name", "operator", "text"),
    [
        (FUNCTIONS, "torch.graft_probe", "Probes it.\n\nArgs:\n    input (Tensor)\n"),
        (SPECIAL, "_special.special_graft_probe", "Probes, specially.\n"),
    ],
)
def test_docstring_of_an_operator_is_set_once(composed: Composition, name: str, operator: str, text: str) -> None:
    """PyTorch allows no second one."""
    found = composed.text(name) or ""
    assert documented(found).count(operator) == 1
    assert text in found.partition(MARK)[2]
    assert len(documented(found)) == len({*documented(found)})
