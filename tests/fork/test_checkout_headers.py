"""Changed headers of a checkout: what is the same, what cannot be laid over an installed PyTorch, who includes them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from graft.checkout.headers import is_same, refused, users
from helpers import beside, write

CASES = beside(__file__)

HEADER = CASES["header"]
AT = "at::native::"
DEFINED = "the declaration of {}, which PyTorch's libraries define, changes"


def edited(*changes: str) -> str:
    """Return the header with texts replaced: each is followed by what takes its place."""
    text = HEADER
    for old, new in zip(changes[::2], changes[1::2], strict=True):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.mark.parametrize("changes", CASES["same"])
def test_same_tokens(changes: tuple[str, ...]) -> None:
    assert is_same(HEADER, edited(*changes))
    assert refused("Window.h", HEADER, edited(*changes)) == ""


@pytest.mark.parametrize("changes", CASES["laid_over"])
def test_what_is_compiled_into_each_includer_can_be_laid_over(changes: tuple[str, ...]) -> None:
    assert not is_same(HEADER, edited(*changes))
    assert refused("Window.h", HEADER, edited(*changes)) == ""


@pytest.mark.parametrize(("changes", "why"), CASES["refused"])
def test_what_the_libraries_were_compiled_with_is_refused(changes: tuple[str, ...], why: str) -> None:
    assert why in refused("Window.h", HEADER, edited(*changes))


def test_headers_of_the_installed_torch_can_have_more_of_everything() -> None:
    folder = Path(torch.__file__).parent / "include/ATen"
    more = "namespace at::native {\nTensor more(int64_t);\ntemplate <class T> T less(T a) { return a; }\n}\n"
    for path in sorted([*(folder / "native").rglob("*.h"), *(folder / "cpu/vec").rglob("*.h")])[::7]:
        text = path.read_text(encoding="utf-8")
        head, first, tail = text.partition("namespace ")
        assert refused(path.name, text, f"{head}#define MORE \\\n  1\n{more}{first}{tail}") == "", path
        assert is_same(text, f"// more\n{text}\n")


def test_users_are_found_through_other_headers(tmp_path: Path) -> None:
    native = "aten/src/ATen/native"
    texts = {
        f"{native}/Window.h": "#include <ATen/native/Shape.h>",
        f"{native}/Shape.h": "#pragma once",
        f"{native}/cpu/Frame.h": "#  include <ATen/native/Window.h>\n#include <ATen/native/cpu/Frames.h>",
        f"{native}/cpu/Frames.h": '#include "Frame.h"',
        f"{native}/A.cpp": "#include <ATen/native/Window.h>",
        f"{native}/B.cpp": '#include "Window.h"',
        f"{native}/cpu/C.cpp": '#include "../Window.h"',
        f"{native}/cpu/D.cpp": '#include "Frames.h"',
        f"{native}/cpu/E.cpp": "#include <ATen/native/Shape.h>\n#include <ATen/native/cpu/Window.h>",
        "torch/csrc/F.cpp": "#include <torch/csrc/f.h>",
        "torch/csrc/f.h": '#include "torch/csrc/g.h"',
        "torch/csrc/g.h": "#include <ATen/native/Gone.h>",
    }
    tree = write(tmp_path, texts)
    sources = [name for name in texts if name.endswith(".cpp")]
    of_window = {f"{native}/{name}.cpp" for name in ("A", "B", "cpu/C", "cpu/D")}
    assert users(tree, [f"{native}/Window.h"], sources) == of_window
    assert users(tree, [f"{native}/Shape.h"], sources) == {*of_window, f"{native}/cpu/E.cpp"}
    assert users(tree, [f"{native}/Window.h"], [f"{native}/A.cpp", f"{native}/cpu/E.cpp"]) == {f"{native}/A.cpp"}
    # The header itself was deleted.
    assert users(tree, [f"{native}/Gone.h"], sources) == {"torch/csrc/F.cpp"}
    assert users(tree, [], sources) == set()
