"""The pages and snippets of the repository's Markdown files, and the native folder that they show.

A comment right before a snippet, which readers do not see, says what the snippet itself does not::

    <!-- not run: the reason -->          no command; or the reason names a test that contains the same words
    <!-- by night -->                     only `make test-nightly ARGS=commands` types it
    <!-- cell -->                         a cell of a notebook, which tests/deliveries/test_notebook.py runs
    <!-- file: ~/my_ops/samples.py -->    what it holds; so does a text whose last name it is, and that ends in a colon
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent.parent

_FENCE = re.compile(r" *```(\w*)$")
_MARK = re.compile(r"<!-- (not run|by night|cell|file)(?:: (.*?))? -->$")
_NAMED = re.compile(r"`(~/[^`\s]+)` [^`]*:$")

# What a script that is shown passes to `graft.load_inline`, and where `save` writes it.
_SAVED = {
    "functions": "~/my_ops/native_functions.yaml",
    "derivatives": "~/my_ops/derivatives.yaml",
    "cpp": "~/my_ops/SoftClip.cpp",
}
_KERNEL = """#include <ATen/core/Tensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/soft_clip_native.h>

namespace at::native {{

{kernel}

}} // namespace at::native
"""

# What the README's operator must satisfy according to these tests.
_STATED = """

def soft_clip_reference(input, limit=1):
    return np.tanh(input.numpy() / limit) * limit


def soft_clip_errors(make):
    yield (make(3), "x"), "must be Number, not str", TypeError


OPINFO = {
    "soft_clip": {
        "dtypes": all_types_and_complex_and(torch.bool, torch.half, torch.bfloat16),
        "supports_out": False,
        "supports_forward_ad": True,
        "supports_fwgrad_bwgrad": True,
    }
}
"""
_IMPORTS = """import numpy as np
import torch
from torch.testing._internal.common_dtype import all_types_and_complex_and


"""


@dataclass(frozen=True)
class Snippet:
    """A fenced code block.

    Args:
        place: its place, for example ``README.md:35``.
        tag: its language.
        text: its content.
        reason: why it is not run; empty if it is.
        file: the file that it shows; empty if none is named.
        is_nightly: whether it takes long.
        is_cell: whether it is a cell of a notebook.
    """

    place: str
    tag: str
    text: str
    reason: str = ""
    file: str = ""
    is_nightly: bool = False
    is_cell: bool = False

    @property
    def is_typed(self) -> bool:
        """Whether these are commands that a user types."""
        return self.tag == "bash" and not self.reason

    @property
    def files(self) -> dict[str, str]:
        """The text of the file that it shows, and of those that this script saves."""
        shown = {self.file: self.text} if self.file else {}
        return shown | (_saved(self.text) if self.file and "ops.save(" in self.text else {})


def _saved(script: str) -> dict[str, str]:
    """Return what a script saves, without running it. test_readme.py runs it, and compares."""
    texts: dict[str, str] = {}
    for each in ast.parse(script).body:
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name) and each.targets[0].id in _SAVED:
            exec(compile(ast.Module([each], []), "README", "exec"), {}, texts)
    texts["cpp"] = _KERNEL.format(kernel=texts["cpp"].strip())
    return {_SAVED[name]: text for name, text in texts.items()}


def snippets_of(path: Path) -> Iterator[Snippet]:
    """Yield the snippets of a Markdown file, in order."""
    lines = path.read_text(encoding="utf-8").splitlines()
    fences = [number for number, line in enumerate(lines) if _FENCE.match(line)]
    for start, end in zip(fences[::2], fences[1::2], strict=True):
        (tag,) = _FENCE.findall(lines[start])
        before = next((line.strip() for line in reversed(lines[:start]) if line.strip()), "")
        mark, named = _MARK.match(before), _NAMED.search(before)
        kind, value = (mark[1], mark[2] or "") if mark else ("", "")
        yield Snippet(
            f"{path.relative_to(REPOSITORY)}:{start + 1}",
            tag,
            textwrap.dedent("\n".join(lines[start + 1 : end]) + "\n"),
            reason=value if kind == "not run" else "",
            file=value if kind == "file" else named[1] if named else "",
            is_nightly=kind == "by night",
            is_cell=kind == "cell",
        )


def documents() -> list[Path]:
    """Return the Markdown files of the repository, without the explanations of codes, which have tests of their own."""
    found = [path.relative_to(REPOSITORY) for path in REPOSITORY.rglob("*.md")]
    return sorted(
        REPOSITORY / each for each in found if each.parts[0] not in ("build", "dist") and each.name != "codes.md"
    )


def pages() -> list[Path]:
    """Return the pages that users read: README.md, those of folders, and their guides."""
    return [REPOSITORY / "README.md", *sorted(REPOSITORY.glob("*/README.md")), *guides()]


def guides() -> list[Path]:
    """Return the pages with one subject each."""
    return sorted(REPOSITORY.glob("*/guides/*.md"))


def shown_operator() -> dict[str, str]:
    """Return the files of the operator in the README's script: entry, formula and kernel."""
    (script,) = (each for each in snippets_of(REPOSITORY / "README.md") if each.file == "~/soft_clip.py")
    return {name.removeprefix("~/my_ops/"): text for name, text in _saved(script.text).items()}


def write_shown_folder(folder: Path) -> None:
    """Write the folder shown as ``~/my_ops``, with a reference for the operator in its samples.py."""
    files = {name: text for path in documents() for each in snippets_of(path) for name, text in each.files.items()}
    own = {name.removeprefix("~/my_ops/"): text for name, text in files.items() if name.startswith("~/my_ops/")}
    kernels = [name for name in own if name.endswith(".cpp")]
    expected = {"derivatives.yaml", "native_functions.yaml", "samples.py", "python/_decomp/decompositions.py", *kernels}
    assert own.keys() == expected and len(kernels) == 1, f"the folder that is shown has other files: {sorted(own)}"
    for name, text in own.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        content = f"{_IMPORTS}{text}{_STATED}" if name == "samples.py" else text
        (folder / name).write_text(content, encoding="utf-8")
