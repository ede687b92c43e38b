"""The operators of this folder, on a wheel built from it. Expected values come from plain operations or NumPy."""

import pytest
import torch

# PyTorch's warnings about its own features, which the operators have kernels for.
OF_FEATURES = (
    "The PyTorch API of nested tensors is in prototype stage",
    "Sparse CSR tensor support is in beta state",
    "torch.quantize_per_tensor, .* are deprecated",
    "This overload of add is deprecated",
)


def pytest_configure(config: pytest.Config) -> None:
    """Ignore warnings of features."""
    for each in OF_FEATURES:
        config.addinivalue_line("filterwarnings", f"ignore:{each}:UserWarning")


def pytest_sessionstart() -> None:
    """Refuse a torch without the operators, with which these tests are meaningless."""
    if not hasattr(torch, "gr_mix"):
        pytest.exit(f"{torch.__file__} has no gr_ operators: build it with NATIVE=tests/wheel/grammar", 3)


@pytest.fixture(autouse=True)
def _fresh() -> None:
    """The same random numbers for each test, and no code that another test compiled."""
    torch.manual_seed(0)
    torch._dynamo.reset()
