"""Native folders that were written from a checkout of PyTorch: files that take the place of torch's own."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from graft.core.folders import PLACES, Origin
from helpers import write
from users import CLIP, CLIPPED, Environment, make, write_clip

INTRINSICS, RESIZE = "torch/include/ATen/native/cpu/Intrinsics.h", "torch/include/ATen/native/Resize.h"
MARK = "#pragma once\n"
# By its path, beside the source, from the folder's root, and through another header of PyTorch's.
INCLUDES = {
    "cpu/A.cpp": "<ATen/native/cpu/Intrinsics.h>",
    "cpu/B.cpp": '"Intrinsics.h"',
    "C.cpp": '"cpu/Intrinsics.h"',
    "D.cpp": "<ATen/native/cpu/AtomicAddFloat.h>",
}
# Vectors of each architecture.
VECTORS = ("vec256/vec256_float.h", "vec512/vec512_float.h", "vec128/vec128_float_neon.h", "sve/vec_float.h")
NEGATIVE = "torch.compile(torch.neg)(torch.ones(64)).unique().tolist()"


class Derived:
    """A native folder as it is written from a checkout, with the README's operator and files of an environment's torch
    that the checkout changes.
    """

    def __init__(self, folder: Path, stock: Environment) -> None:
        self.folder = write_clip(folder / "derived")
        self.native = folder / "pytorch/aten/src/ATen/native"
        self._checkout, self._packages = folder / "pytorch", stock.packages
        self.lay_over([], "", "")

    def lay_over(self, keys: list[str], old: str, new: str) -> None:
        """Lay over files of torch in which ``new`` is in the place of ``old``."""
        texts = {key: (self._packages / key).read_text(encoding="utf-8") for key in keys}
        assert all(old in text for text in texts.values())
        shutil.rmtree(self.folder / "overlay", ignore_errors=True)
        write(self.folder / "overlay", {key: text.replace(old, new, 1) for key, text in texts.items()})
        places = {name: f"aten/src/ATen/native/{name}" for name in ("SoftClip.cpp", "native_functions.yaml")}
        places |= {f"overlay/{key}": key.replace("torch/include/ATen", "aten/src/ATen") for key in keys}
        write(self.folder, {PLACES: Origin(str(self._checkout), "SOURCE", places).text})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("laid-over")


@pytest.fixture
def derived(place: Path, stock: Environment) -> Iterator[Derived]:
    """The same folder for each test, so that little is compiled twice."""
    yield Derived(place, stock)
    make("undevelop", stock)


def compiled(said: str) -> int:
    """Return how many sources were compiled, now or for an earlier build with the same header."""
    found = re.search(r"(\d+) of \d+ sources(?: and \d+ of \d+ libraries)?(?:, (\d+) compiled before)?", said)
    assert found
    return int(found[1]) + int(found[2] or 0)


def test_header_is_that_of_all_that_includes_it(stock: Environment, derived: Derived) -> None:
    for number, (name, include) in enumerate(INCLUDES.items()):
        text = f"namespace at::native {{ int64_t laid_over_{number}() {{ return LAID_OVER; }} }}\n"
        write(derived.folder, {name: f"#include <cstdint>\n#include {include}\n{text}"})
    sums = " + ".join(f"laid_over_{number}()" for number, _ in enumerate(INCLUDES))
    declared = sums.replace("laid", "int64_t laid").replace(" +", ";")
    kernel = CLIP["SoftClip.cpp"].replace(".mul(limit)", f".mul({sums})")
    write(derived.folder, {"SoftClip.cpp": kernel.replace("Tensor soft_clip", f"{declared};\nTensor soft_clip", 1)})
    try:
        derived.lay_over([INTRINSICS], MARK, f"{MARK}#define LAID_OVER 2\n")
        make("develop", stock, "--native", derived.folder)
        assert stock.print(CLIPPED) == "[0.0, 8.0]"
        derived.lay_over([INTRINSICS], MARK, f"{MARK}#define LAID_OVER 3\n")
        said = make("develop", stock, "--native", derived.folder)
        assert stock.print(CLIPPED) == "[0.0, 12.0]"
        assert compiled(said) == len(INCLUDES)
        assert (
            stock.print("'LAID_OVER 3' in open(torch.__path__[0] + '/include/ATen/native/cpu/Intrinsics.h').read()")
            == "True"
        )
        # The store has the objects, and takes those of the same header only.
        derived.lay_over([INTRINSICS], MARK, f"{MARK}#define LAID_OVER 2\n")
        assert "0 of " in make("develop", stock, "--native", derived.folder)
        assert stock.print(CLIPPED) == "[0.0, 8.0]"
        derived.lay_over([], "", "")
        said = make("develop", stock, "--native", derived.folder, is_right=False)
        assert f"{derived.folder}/cpu/A.cpp:3" in said and "LAID_OVER" in said
    finally:
        for name in INCLUDES:
            (derived.folder / name).unlink()


@pytest.mark.slow
def test_generated_code_has_it_too_and_errors_name_the_checkout_s_files(stock: Environment, derived: Derived) -> None:
    derived.lay_over([RESIZE], MARK, f"{MARK}\n#error laid over\n")
    said = make("develop", stock, "--native", derived.folder, is_right=False)
    line = 1 + (derived.folder / "overlay" / RESIZE).read_text().splitlines().index("#error laid over")
    assert f"{derived.native}/Resize.h:{line}:2: error: #error laid over" in said
    assert f"fix {derived.native}/Resize.h and build again" in said
    assert str(derived.folder) not in said
    derived.lay_over([], "", "")
    write(derived.folder, {"native_functions.yaml": "\n- func: soft_clip(Tensor self) -> Tenser\n"})
    said = make("develop", stock, "--native", derived.folder, is_right=False)
    assert f"{derived.native}/native_functions.yaml:2" in said and str(derived.folder) not in said


def test_python_is_laid_over_and_what_folders_append_comes_behind(stock: Environment, derived: Derived) -> None:
    derived.lay_over(["torch/torch_version.py"], "from typing", "LAID = 'over'\nfrom typing")
    write(derived.folder, {"python/torch_version.py": "LAID += ' and behind'\n"})
    try:
        make("develop", stock, "--native", derived.folder)
        assert stock.print("torch.torch_version.LAID") == "over and behind"
        assert f"{derived.folder}: unchanged since" in stock.about()
        derived.lay_over(["torch/torch_version.py"], "from typing", "LAID = none\nfrom typing")
        said = make("develop", stock, "--native", derived.folder, is_right=False)
        line = 1 + (derived.folder / "overlay/torch/torch_version.py").read_text().splitlines().index("LAID = none")
        assert f"pytorch/torch/torch_version.py:{line}: NameError: name 'none'" in said
        derived.lay_over(["torch/torch_version.py"], "from typing", "LAID = = 1\nfrom typing")
        said = make("develop", stock, "--native", derived.folder, is_right=False)
        assert f"pytorch/torch/torch_version.py:{line}:8: not Python" in said
    finally:
        (derived.folder / "python/torch_version.py").unlink()


def test_two_folders_with_other_contents_are_refused(stock: Environment, derived: Derived, tmp_path: Path) -> None:
    other = Derived(tmp_path, stock)
    derived.lay_over([RESIZE], MARK, f"{MARK}#define LAID_OVER 2\n")
    other.lay_over([RESIZE], MARK, f"{MARK}#define LAID_OVER 3\n")
    said = make("develop", stock, "--native", f"{derived.folder} {other.folder}", is_right=False)
    both = f"{other.native}/Resize.h:1: {derived.native}/Resize.h takes the place of {RESIZE}, too"
    assert both in said


@pytest.mark.slow
def test_inductor_compiles_with_it_also_what_is_in_its_cache(
    stock: Environment, derived: Derived, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "cache"))
    keys = [f"torch/include/ATen/cpu/vec/{name}" for name in VECTORS]
    old = "Vectorized<float> neg() const {"
    derived.lay_over(keys, old, f"{old} return Vectorized<float>(7);")
    make("develop", stock, "--native", derived.folder)
    assert stock.print(NEGATIVE) == "[7.0]"
    derived.lay_over(keys, old, f"{old} return Vectorized<float>(8);")
    make("develop", stock, "--native", derived.folder)
    assert stock.print(NEGATIVE) == "[8.0]"
