"""The kernels for each CPU capability except the highest, which the other tests use: tests of values run again."""

import re
from pathlib import Path

import pytest
from samples import at_capability

FOLDER = Path(__file__).parent
# Kernels whose operator has another name.
OPERATORS = {"SpectralMagnitude": "Rfft2Abs", "DepthwiseConv2dWeight": "DepthwiseConv2d"}
CHOSEN = "test_values or agrees_with_mul or test_gradient or caches_hold"


def tests_of_kernels() -> list[str]:
    """Return the tests of each operator with a kernel of its own."""
    stems = {path.stem.removesuffix("Kernel") for path in FOLDER.parents[2].glob("native/cpu/*Kernel.cpp")}
    names = {re.sub(r"(?<!^)(?=[A-Z])", "_", OPERATORS.get(stem, stem)).lower() for stem in stems}
    return [str(FOLDER / f"test_{name}.py") for name in sorted(names)]


@pytest.mark.parametrize("capability", ["DEFAULT", "AVX2"])
def test_right_at_every_cpu_capability(capability: str) -> None:
    arguments = ["-q", "-p", "no:cacheprovider", "-k", CHOSEN, *tests_of_kernels()]
    at_capability(capability, f"import pytest\nassert pytest.main({arguments}) == 0\n")
