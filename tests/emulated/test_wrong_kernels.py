"""The tests of an operator fail where one line of its kernel for CUDA is wrong."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from emulated_cuda import kernels_of
from test_launches import SOURCES, operator_of

OPERATORS = Path(__file__).parent.parent / "wheel/shipped"

# For each kernel a line of it and what stands in its place.
WRONG = {
    "correlate2d_forward_kernel": ("sum += from[b] * taps[", "sum -= from[b] * taps["),
    "correlate2d_tap_kernel": ("half = threads / 2; half > 0;", "half = threads / 2; half > 1;"),
    "depthwise_conv2d_forward_kernel": (
        "const scalar_t* taps = weight + at.channel * p.taps();\n    T",
        "const scalar_t* taps = weight;\n    T",
    ),
    "depthwise_conv2d_grad_input_kernel": ("if (grad_output.holds(y, x)) {", "if (grad_output.holds(y, x) && x > 0) {"),
    "depthwise_conv2d_grad_weight_kernel": ("half = blockDim.y / 2; half > 0;", "half = blockDim.y / 2; half > 1;"),
    "improved_triplet_loss_forward_kernel": (
        "formula.loss(d.to_positive, d.to_negative)",
        "formula.loss(d.to_negative, d.to_positive)",
    ),
    "improved_triplet_loss_grad_kernel": ("through_positive + through_negative", "through_positive - through_negative"),
    "MulConstantKernel": ("static_cast<opmath_t>(x) * factor", "static_cast<opmath_t>(x) + factor"),
    "roi_pool_forward_kernel": ("if (!(value <= best)", "if (!(value < best)"),
    "roi_pool_backward_plane_kernel": ("(k * channels + plane % channels) * bins", "k * channels * bins"),
    "TwicePlusKernel": ("static_cast<opmath_t>(x) + static_cast<opmath_t>(x) +", "static_cast<opmath_t>(x) +"),
}


def run(source: Path, right: str, wrong: str, folder: Path, *tests: str | Path) -> subprocess.CompletedProcess[str]:
    """Run tests on a copy of ``source`` with other text in a line; other operators have their kernels for CPUs."""
    text = source.read_text()
    assert text.count(right) == 1, (
        f"{source.name}: {right!r} stands there {text.count(right)} times; write another line"
    )
    (folder / "cuda").mkdir()
    (folder / "cuda" / source.name).write_text(text.replace(right, wrong))
    env = {**os.environ, "GRAFT_EMULATED": str(folder / "build"), "GRAFT_EMULATED_SOURCES": str(folder / "cuda")}
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--tb=line", "-p", "no:cacheprovider", *tests]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_the_table_is_complete() -> None:
    assert set(WRONG) == {kernel for source in SOURCES for kernel in kernels_of(source)}


@pytest.mark.slow
@pytest.mark.parametrize("kernel", WRONG)
def test_a_wrong_kernel_is_found(kernel: str, tmp_path: Path) -> None:
    (source,) = (source for source in SOURCES if kernel in kernels_of(source))
    done = run(source, *WRONG[kernel], tmp_path, OPERATORS / f"test_{operator_of(source)}.py")
    assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout[-3000:] + done.stderr[-3000:]
    assert re.search(r"^FAILED ", done.stdout, re.M)


@pytest.mark.slow
def test_a_kernel_that_is_not_registered_is_found(tmp_path: Path) -> None:
    (source,) = (source for source in SOURCES if source.stem == "MulConstantKernel")
    line = "REGISTER_CUDA_DISPATCH(mul_constant_stub, &mul_constant_kernel)"
    done = run(source, line, "", tmp_path, "-k", source.stem, Path(__file__).parent / "test_launches.py")
    assert f"assert ['{source.stem}'] == []" in done.stdout, done.stdout[-3000:] + done.stderr[-3000:]
