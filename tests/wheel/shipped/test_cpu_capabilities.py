"""The kernels for each CPU capability except the highest, which the other tests use.

One program for each capability calls ``check_cpu_capability`` of the operators' tests.
"""

from pathlib import Path

import pytest
from samples import at_capability

CHECK = "check_cpu_capability"
MODULES = sorted(path.stem for path in Path(__file__).parent.glob("test_*.py") if f"def {CHECK}(" in path.read_text())


def test_each_operator_with_a_kernel_of_its_own_is_checked() -> None:
    kernels = Path(__file__).parents[3] / "native/cpu"
    names = {path.stem.removesuffix("Kernel") for path in kernels.glob("*Kernel.cpp")}
    checked = {module.removeprefix("test_").replace("_", "") for module in MODULES}
    # Sources whose operator has another name.
    of_source = {"SpectralMagnitude": "rfft2abs", "DepthwiseConv2dWeight": "depthwiseconv2d"}
    assert {of_source.get(name, name.lower()) for name in names} == checked


@pytest.mark.parametrize("capability", ["DEFAULT", "AVX2"])
def test_right_at_every_cpu_capability(capability: str) -> None:
    at_capability(capability, "".join(f"import {name}\n{name}.{CHECK}()\n" for name in MODULES))
