"""Files of a folder that are elsewhere in PyTorch's tree: its build would compile them otherwise."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from graft.core.errors import UsageError
from graft.core.layout import Layout
from graft.fork.apply import NATIVE, apply
from helpers import git, write
from small_tree import commit_upstream

# A kernel that is no stub kernel, which includes headers in each way, and a file that includes it.
FILES = {
    "cpu/K.cpp": """#include "Beside.h"\r
#include "../Above.h"
#  include "lib/api/types.h"  // from the root
#include <ATen/native/Above.h>
#include <vector>
int k = BESIDE + ABOVE + TYPES;
""",
    "cpu/Beside.h": "#pragma once\n#define BESIDE 1\n",
    "Above.h": "#pragma once\n#define ABOVE 2\n",
    "lib/api/types.h": "#pragma once\n#define TYPES 3\n",
    "lib/deep/impl.h": '#pragma once\n#include "lib/api/types.h"\n#include "near.h"\n',
    "lib/deep/near.h": "#pragma once\n",
    "Other.cpp": '#include "lib/deep/impl.h"\n#include "cpu/K.cpp"\nint other = TYPES;\n',
    "cpu/StubKernel.cpp": '#include "Beside.h"\nREGISTER_DISPATCH(stub, &kernel)\n',
}


@pytest.fixture
def applied(tree: Path, layout: Layout, native: Path) -> Path:
    """ATen's folder in the tree."""
    write(native, FILES)
    apply(tree, layout)
    return tree / NATIVE


def test_kernel_in_cpu_that_is_no_stub_kernel_is_outside_of_it(applied: Path) -> None:
    assert not (applied / "cpu/K.cpp").exists()
    assert (applied / "K_cpu.cpp").read_bytes() == (
        b"#include <ATen/native/cpu/Beside.h>\r\n#include <ATen/native/Above.h>\n"
        b'#  include "lib/api/types.h"  // from the root\n'
        b"#include <ATen/native/Above.h>\n#include <vector>\nint k = BESIDE + ABOVE + TYPES;\n"
    )
    assert (applied / "cpu/StubKernel.cpp").read_text() == FILES["cpu/StubKernel.cpp"]


def test_includes_resolve_in_the_tree(applied: Path) -> None:
    """With the folders that PyTorch's build searches."""
    for name in ("K_cpu.cpp", "Other.cpp"):
        subprocess.run(["g++", "-fsyntax-only", f"-I{applied.parents[1]}", applied / name], check=True)
    assert "#include <ATen/native/K_cpu.cpp>" in (applied / "Other.cpp").read_text()
    assert '#include "lib/deep/impl.h"' in (applied / "Other.cpp").read_text()
    assert (applied / "lib/deep/impl.h").read_text() == (
        '#pragma once\n#include <ATen/native/lib/api/types.h>\n#include "near.h"\n'
    )


def test_header_of_extensions_has_no_python_in_the_tree(tree: Path, layout: Layout, native: Path) -> None:
    """PyTorch's own, which it has there, needs Python; this has the same names."""
    write(native, {"Mine.cpp": "#include <torch/extension.h>\nint mine;\n"})
    apply(tree, layout)
    assert (tree / NATIVE / "Mine.cpp").read_text() == "#include <torch/all.h>\nint mine;\n"


def test_place_that_is_taken(tree: Path, layout: Layout, native: Path, patches: Path) -> None:
    write(native, {**FILES, "K_cpu.cpp": "int mine;\n"})
    apply(tree, layout)
    assert (tree / NATIVE / "K_cpu.cpp").read_text() == "int mine;\n"
    assert (tree / NATIVE / "K_cpu_.cpp").read_text().startswith("#include <ATen/native/cpu/Beside.h>")
    git(tree, "checkout", "--quiet", "main")
    commit_upstream(tree, patches, {f"{NATIVE}/K_cpu_.cpp": "int theirs;\n"})
    with pytest.raises(UsageError, match=f"{native}/cpu/K.cpp: PyTorch has this file, {NATIVE}/K_cpu_.cpp"):
        apply(tree, layout)
