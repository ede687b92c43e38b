"""Where an operator's formulas and kernels are, for messages about failed tests."""

from __future__ import annotations

from pathlib import Path

from graft.core.layout import REPOSITORY
from helpers import beside, write

from tests.kit.places import places_of

FILES = beside(__file__)["files"]


def places(operator: str, native: Path) -> list[str]:
    return [place.removeprefix(f"{native}/") for place in places_of(operator, [native])]


def test_formulas_come_first_and_then_kernels(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    assert places("soft_clip", tmp_path) == [
        "derivatives.yaml:3: self: grad * 2",
        "derivatives.yaml:4: result: auto_element_wise",
        "SoftClip.cpp:3: TORCH_IMPL_FUNC(soft_clip_out)(const Tensor& self, const Tensor& out)",
    ]


def test_operator_without_dispatch_is_its_own_kernel(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    assert places("soft_clipped", tmp_path) == [
        "derivatives.yaml:7: self: grad",
        "SoftClip.cpp:6: Tensor soft_clipped(",
    ]


def test_each_shipped_operator_has_a_place() -> None:
    names = (
        "gdh",
        "twice_plus",
        "mul_constant",
        "affine",
        "depthwise_conv2d",
        "roi_pool",
        "fft_rfft2_abs",
        "correlate2d",
    )
    assert [
        name for name in names if not any(".cpp:" in place for place in places_of(name, [REPOSITORY / "native"]))
    ] == []


def test_operator_of_nobody_has_no_place(tmp_path: Path) -> None:
    assert places_of("nobody", [tmp_path]) == []
