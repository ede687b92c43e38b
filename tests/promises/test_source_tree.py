"""What a release lacks is found in its source tree, without building it: `make check ARGS="--source --syntax"`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from graft.core.errors import BuildError
from graft.core.layout import REPOSITORY
from helpers import kernel, write
from packaging.version import Version

OLDEST = min((path.parent.name for path in REPOSITORY.glob("patches/*/pin.yaml")), key=Version)

FUNCTIONS = """\
- func: soft_clip(Tensor self) -> Tensor
  variants: function
  dispatch:
    CompositeExplicitAutograd: soft_clip
"""
# The release has no such template.
KERNEL = """\
#include <ATen/cpu/vec/vec.h>
#include <ATen/native/cpu/SoftClip.h>

constexpr bool is_vectorized = width<at::vec::Vectorized<float>>;
"""
HEADER = """\
#pragma once
template <typename T>
constexpr bool width = at::vec::is_vec_specialized_for<T>::value;
"""


@pytest.mark.slow
def test_name_that_only_newer_releases_have_is_reported_with_its_line(tmp_path: Path) -> None:
    if not shutil.which("dpkg-source"):
        pytest.skip("Debian's tools are not installed")
    source = kernel("soft_clip", "const Tensor& self", "return self.tanh();")
    files = {"native_functions.yaml": FUNCTIONS, "SoftClip.cpp": source}
    write(tmp_path, {**files, "cpu/SoftClipKernel.cpp": KERNEL, "cpu/SoftClip.h": HEADER})
    command = [sys.executable, "-m", "graft", "check", "--source", "--pin", OLDEST, "--native", tmp_path, "--syntax"]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    done = subprocess.run(command, cwd=REPOSITORY, env=variables, capture_output=True, text=True, check=False)
    if "fetch the sources: failed" in done.stderr:
        pytest.skip(f"the sources of PyTorch {OLDEST} cannot be downloaded here")
    assert done.returncode == BuildError.exit_code, done.stderr
    assert f"{tmp_path}/cpu/SoftClip.h:3:" in done.stderr
    assert "is_vec_specialized_for" in done.stderr
    assert "SoftClip.cpp" not in done.stderr
    assert f"PyTorch {OLDEST} lacks it" in done.stderr
