"""What the fuzzer reports for operators with known faults."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.kit.fuzz import judge as judging
from tests.kit.fuzz.judge import CallOutcome, is_large, judge
from tests.kit.fuzz.rounding import InvalidOutcome, is_close, run_moved
from tests.kit.fuzz.tensors import Described
from tests.kit.fuzz.valid import Call

STRIDED = Described((40, 30), torch.float32, seed=1, layout="strided")
EXPANDED = Described((40, 30), torch.float32, seed=1, layout="expanded")
REPOSITORY = Path(__file__).parents[3]
EQUAL = Described((2, (1 << 20) + 1), torch.float64, seed=1)


def cancelling(x: Tensor) -> Tensor:
    """Nearly zero relative to the summands, in an order that depends on the strides."""
    numbers = (x - x.mean()).flatten() * 1e3
    ordered = numbers if x.is_contiguous() else numbers.sort().values
    return ordered.cumsum(0)[-1].clone()


def adding(x: Tensor) -> Tensor:
    """Sequential for contiguous tensors, otherwise a tree."""
    return x.cumsum(1)[:, -1].clone() if x.is_contiguous() else x.sum(1)


def misreading(x: Tensor) -> Tensor:
    """As if it were contiguous."""
    return x.as_strided(x.shape, torch.empty(x.shape, device="meta").stride()).clone()


def inexact(x: Tensor) -> Tensor:
    """Wrong by more than rounding for non-contiguous strides."""
    return x.contiguous() * (1.0 if x.is_contiguous() else 1.0001)


def refusing(x: Tensor) -> Tensor:
    raise RuntimeError("expected x to be of another size")


def asserting(x: Tensor) -> Tensor:
    raise RuntimeError("INTERNAL ASSERT FAILED")


def right(x: Tensor) -> Tensor:
    return x.contiguous() * 2


Define = Callable[..., torch._ops.OpOverload]


@pytest.fixture
def define() -> Iterator[Define]:
    """Return a function that defines an operator by its arguments and its kernels."""
    library = torch.library.Library("fuzzed", "DEF")

    def define(arguments: str, kernel: Callable[..., Tensor], **others: Callable[..., Tensor]) -> torch._ops.OpOverload:
        library.define(f"call({arguments}) -> Tensor")
        for key, each in {"CPU" if others else "CompositeExplicitAutograd": kernel, **others}.items():
            library.impl("call", each, key)
        return torch.ops.fuzzed.call.default

    yield define
    library._destroy()


def judged(overload: torch._ops.OpOverload, call: Call) -> CallOutcome:
    try:
        return judge(overload, call, large=False)
    except InvalidOutcome as finding:
        return CallOutcome("finding", str(finding))


@pytest.mark.parametrize(
    ("function", "described", "kind", "text"),
    [
        (right, STRIDED, "result", ""),
        (cancelling, STRIDED, "result", ""),
        (misreading, STRIDED, "finding", "another result of contiguous tensors"),
        (inexact, STRIDED, "finding", "another result of contiguous tensors"),
        (refusing, STRIDED, "error", "of another size"),
        (asserting, STRIDED, "finding", "INTERNAL ASSERT"),
        (adding, EQUAL, "result", ""),
        (inexact, EXPANDED, "finding", ""),
        (inexact, EQUAL, "finding", ""),
    ],
)
def test_kind(define: Define, function: Callable[[Tensor], Tensor], described: Described, kind: str, text: str) -> None:
    outcome = judged(define("Tensor x", function), {"x": described})
    assert outcome.kind == kind and text in outcome.text, outcome


FLOAT, DOUBLE = (Described((4, 3), dtype, seed=1) for dtype in (torch.float32, torch.float64))
ZEROS = Described((4, 3), torch.float32, fill="zeros")


@pytest.mark.parametrize(
    ("function", "reference", "described", "number", "kind"),
    [
        (lambda x, n: x * n, lambda x, n: 2 * x.numpy(), FLOAT, 2, "result"),
        (lambda x, n: x * n, lambda x, n: 2 * x.numpy(), FLOAT, 2.001, "finding"),
        (lambda x, n: x[:0] * n, lambda x, n: 2 * x.numpy(), FLOAT, 2, "finding"),
        (lambda x, n: x * n, lambda x, n: 2 * x.numpy(), DOUBLE, 3, "result"),  # a dtype that is not stated
        # A sum of some 1e38 overflows as float, but not in the reference's double precision.
        (lambda x, n: x - n, lambda x, n: x.numpy() + n, FLOAT, 2, "finding"),
        (lambda x, n: x - n, lambda x, n: x.numpy() + n, FLOAT, 1e38, "result"),
        (lambda x, n: x - n, lambda x, n: x.numpy() + n, FLOAT, float("inf"), "finding"),
        # 1e-60 is zero as float, so 0 / 1e-60 is not a number, but zero in double precision.
        (lambda x, n: x / n, lambda x, n: x.numpy() / n, ZEROS, 1e-60, "result"),
    ],
)
def test_reference(
    define: Define,
    monkeypatch: pytest.MonkeyPatch,
    function: Callable[..., Tensor],
    reference: Callable[..., object],
    described: Described,
    number: float,
    kind: str,
) -> None:
    monkeypatch.setattr(judging, "reference", {"fuzzed::call": reference}.get)
    monkeypatch.setattr(judging, "stated_dtypes", {"fuzzed::call": {torch.float32}}.get)
    outcome = judged(define("Tensor x, float n", function), {"x": described, "n": number})
    assert outcome.kind == kind, outcome


@pytest.mark.parametrize(
    "dtype", [torch.half, torch.bfloat16, torch.float, torch.double, torch.cfloat, torch.cdouble], ids=str
)
def test_inputs_move_by_one_rounding_error(dtype: torch.dtype) -> None:
    x, eps = torch.ones(64, dtype=dtype), torch.finfo(dtype).eps
    (distance,) = run_moved(lambda change: [change(x)], [x])
    assert eps / 2 <= distance <= eps
    if dtype.is_complex:
        (turned,) = run_moved(lambda change: [change(x * (1 + 1j)).angle()], [x.real * torch.pi / 4])
        assert turned > eps / 4, "the direction is to change"


def test_meta_tensors_disagree(define: Define) -> None:
    outcome = judged(define("Tensor x", right, Meta=lambda x: x.new_empty(x.shape[0])), {"x": STRIDED})
    assert outcome.kind == "finding" and "of meta tensors" in outcome.text, outcome


@pytest.mark.parametrize("size", [100, 1 << 30])
def test_large_by_its_result(define: Define, size: int) -> None:
    overload = define("Tensor x, int size", lambda x, size: x.new_empty(size))
    assert is_large(overload, {"x": STRIDED, "size": size}) == (size > 100)


def test_too_large_for_a_vector_is_a_lack_of_memory() -> None:
    """A copy of a row that has as many elements as there are addresses, expanded from one."""

    def call() -> list[Tensor]:
        raise ValueError("cannot create std::vector larger than max_size()")

    assert judging.attempt(call, large=True) == CallOutcome(
        "no-memory", "cannot create std::vector larger than max_size()"
    )
    with pytest.raises(InvalidOutcome, match="max_size"):
        judging.attempt(call, large=False)


def test_order_of_additions_matters() -> None:
    """Otherwise the sums above would show nothing."""
    x, y = EQUAL.make(), STRIDED.make()
    assert not is_close(adding(x), adding(x.contiguous()))
    assert abs(float(cancelling(y) - cancelling(y.contiguous()))) > 64 * torch.finfo(torch.float32).eps


# Calls with a tensor that is not contiguous end as given. The arguments are a folder, and a file with a call.
PROGRAM = """
import os, pickle, sys, time
from pathlib import Path
import torch
from tests.kit.fuzz.__main__ import make, make_batch
from tests.kit.fuzz.calls import calls
from tests.kit.fuzz.tensors import Described
def assertion(): raise RuntimeError("INTERNAL ASSERT FAILED")
def call(x):
    if not x.is_contiguous(): {end}()
    return x.clone()
library = torch.library.Library("aten", "FRAGMENT")
library.define("fuzzed(Tensor x) -> Tensor")
library.impl("fuzzed", call, "CompositeExplicitAutograd")
folder = Path(sys.argv[1])
if len(sys.argv) > 2:
    make(folder, 0, *pickle.loads(Path(sys.argv[2]).read_bytes()))
valid = {{"aten::fuzzed": [{{"x": Described((7, 5), torch.float32)}}]}}
make_batch(folder, 2, time.monotonic() + 60, calls(valid))
"""


@pytest.mark.parametrize(
    ("end", "code", "text"), [("os.abort", -signal.SIGABRT, ""), ("assertion", 1, "INTERNAL ASSERT FAILED")]
)
def test_last_call_is_the_finding_and_can_be_repeated(tmp_path: Path, end: str, code: int, text: str) -> None:
    command = [sys.executable, "-c", PROGRAM.format(end=end), tmp_path]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == code and text in done.stderr, done.stderr
    called = json.loads((tmp_path / "call.json").read_text())["text"]
    if text:
        assert called.startswith("aten::fuzzed(x=float32[7, 5] "), "nothing but the layout is to be changed"
    again = [*command, tmp_path / "call.pickle"]
    done = subprocess.run(again, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == code and text in done.stderr, done.stderr
    assert json.loads((tmp_path / "call.json").read_text())["text"] == called
