"""These tests run in an environment with the rebuilt wheel, created by `make test`."""

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from helpers import of_the_base_wheel

from tests.kit.stock import require_difference

# Warnings that only some releases of PyTorch raise.
OF_RELEASES = (
    "ignore:Please use `torch.vmap` instead of `torch._vmap_internals.vmap`:FutureWarning",
    "ignore:Skipping serialization of skipfiles_inline_module_allowlist:UserWarning",
    "ignore:Warning. Profiler clears events at the end of each cycle:UserWarning",
    # opcheck itself reads this attribute
    "ignore:The .grad attribute of a Tensor that is not a leaf Tensor is being accessed:UserWarning",
    "ignore:`torch.jit.[a-z_]+` is (deprecated|not supported)",
    # PyTorch's compilers warn about their own use of PyTorch and Python, whatever the operator.
    *(
        f"ignore::{category}:torch\\.(_inductor|_dynamo|_functorch|_export|_subclasses|_higher_order_ops|fx|export)"
        for category in ("DeprecationWarning", "FutureWarning")
    ),
)


def pytest_configure(config: pytest.Config) -> None:
    """Ignore warnings of the release itself."""
    for each in OF_RELEASES:
        config.addinivalue_line("filterwarnings", each)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests of features that a delivery does not have."""
    if os.environ.get("GRAFT_DELIVERY") == "thin-wheel":
        for item in items:
            if item.get_closest_marker("needs_headers"):
                item.add_marker(pytest.mark.skip(reason="a thin wheel has no C++ headers"))


def pytest_sessionstart() -> None:
    """Refuse another torch, with which these tests are meaningless."""
    if not re.search(r"[+.](graft|source)\.", torch.__version__) and not hasattr(torch, "_thin_wheels"):
        pytest.exit(f"the torch under test is {torch.__version__} in {torch.__file__}, not one of Graft's wheels", 3)


@pytest.fixture(scope="session")
def wheel() -> Path:
    """The installed wheel."""
    if "GRAFT_TESTED_WHEEL" not in os.environ:
        pytest.skip("looks at the file of a wheel of torch, and there is none")
    return Path(os.environ["GRAFT_TESTED_WHEEL"])


@pytest.fixture(scope="session")
def base() -> Path:
    """The unpacked base wheel."""
    return of_the_base_wheel("GRAFT_BASE_FOLDER") / "tree"


@pytest.fixture(scope="session")
def stock() -> Path:
    """A folder with the base wheel installed: the torch of processes with ``tests.kit.stock.environment``."""
    folder = of_the_base_wheel("GRAFT_STOCK")
    require_difference(folder, torch._added_operators.OPERATORS)
    return folder


@pytest.fixture
def no_loop() -> Iterator[None]:
    """vmap without its fallback: an operator without a batching rule raises an error instead of being looped over."""
    torch._C._functorch._set_vmap_fallback_enabled(False)
    yield
    torch._C._functorch._set_vmap_fallback_enabled(True)
