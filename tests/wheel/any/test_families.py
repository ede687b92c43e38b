"""PyTorch's families of tests on a few operators of PyTorch, since a folder may lack some kinds of operators."""

import os
import re
import subprocess
import sys
from pathlib import Path

from broken_opinfos import FAILING
from helpers import write

FAMILIES = Path(__file__).parent / "families"


def run(operators: str, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    path = os.pathsep.join([str(FAMILIES.parent), os.environ["PYTHONPATH"]])
    env = {**os.environ, "GRAFT_OPERATORS": operators, "PYTHONPATH": path, **variables}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_collected() -> None:
    """An operator without a derivative, one for integers only, and one without an in-place variant."""
    operators = ["isfinite", "nn.functional.one_hot", "masked_select"]
    done = run(",".join(operators), "--collect-only", FAMILIES)
    assert done.returncode == 0, done.stdout
    for operator in operators:
        assert f"test_variant_consistency_eager_{operator.replace('.', '_')}_cpu" in done.stdout


def test_they_fail_for_wrong_op_infos() -> None:
    files = [FAMILIES / name for name in ("test_eager.py", "test_gradients.py")]
    names = ("dtypes", "reference", "errors", "variant", "schema", "fn_grad", "forward_mode")
    done = run(",".join(FAILING), "-p", "broken_opinfos", "-k", " or ".join(names), *files)
    failed = set(re.findall(r"^FAILED \S+::(test_\w+)_cpu", done.stdout, re.M))
    for name, tests in FAILING.items():
        of_name = {test.partition(f"_{name}")[0] for test in failed if f"_{name}" in test}
        assert of_name == tests, f"{name}: {done.stdout[-3000:]}"


def test_failure_begins_with_the_formula_of_the_operator(tmp_path: Path) -> None:
    write(tmp_path, {"derivatives.yaml": "- name: mul(Tensor self) -> Tensor\n  self: grad * 3\n  other: grad\n"})
    options = ("-p", "broken_opinfos", "-k", "reference", FAMILIES / "test_eager.py")
    said = run("of_wrong_value", *options, GRAFT_NATIVE=str(tmp_path), COLUMNS="400").stdout
    place = f"{tmp_path}/derivatives.yaml:2: self: grad * 3"
    assert re.search(rf"^FAILED \S+ - {re.escape(place)}$", said, re.M), said
    assert f"\n{place}\n{tmp_path}/derivatives.yaml:3: other: grad\n" in said
    assert said.index(place) < said.index("Mismatched elements")
    assert "base repo dir" not in said
