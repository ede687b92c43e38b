"""PyTorch's own operators behave on the rebuilt wheel as on the stock one: the same tests pass and fail."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kit.stock import environment

pytestmark = [
    pytest.mark.slow,
    pytest.mark.unsanitized("they are in the official libraries, which no sanitizer watches"),
]

FAMILIES = Path(__file__).parent.parent / "any/families"
OPERATORS = (
    "abs,add,addcmul,atan2,bmm,cat,clamp,copysign,cumsum,diff,digamma,erf,expand,fft.fft,gather,index_select,"
    "lerp,linalg.det,linalg.norm,logsumexp,matmul,mul,nn.functional.conv2d,nn.functional.gelu,nn.functional.linear,pow,reshape,softmax,sum,where"
)
# Families that take a fraction of a second for an operator, and three dtypes, so that everything takes a minute.
CHOSEN = "(TestCommon or TestMeta or TestTags or TestSchemaCheck) and (float32 or int64 or complex64)"


def outcomes(first_on_path: Path | None, empty: Path) -> dict[str, set[str]]:
    """Return the tests by outcome, on the torch in a folder or on the environment's own."""
    env = {**environment(first_on_path), "GRAFT_OPERATORS": OPERATORS}
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "--tb=no", "--show-capture=no", "--noconftest"]
    command += ["-p", "no:cacheprovider", "-k", CHOSEN, str(FAMILIES)]
    # `-m` puts the current folder first on the path, so it must not contain torch; Python 3.10 has no `-P`.
    done = subprocess.run(command, cwd=empty, capture_output=True, text=True, check=False, env=env)
    found: dict[str, set[str]] = {"PASSED": set(), "FAILED": set()}
    for outcome, name in re.findall(r"^(PASSED|FAILED) .+?::(\w+::\w+)", done.stdout, re.M):
        found[outcome].add(name)
    assert found["PASSED"], done.stdout[-2000:] + done.stderr[-2000:]
    return found


def test_the_same_tests_pass_and_fail(stock: Path, tmp_path: Path) -> None:
    ours, theirs = outcomes(None, tmp_path), outcomes(stock, tmp_path)
    assert len(theirs["PASSED"]) > 300
    assert ours == theirs
