"""PyTorch's own OpInfo test files, from the source tree that the wheel was built from.

They take all operators from ``op_db``, to which the folder's are added. Only tests with the name of one of these run.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from graft.core.layout import PACKAGES, REPOSITORY

from tests.kit.opinfos import added_op_infos

FILES = [
    "test_ops.py",
    "test_ops_gradients.py",
    "test_ops_fwd_gradients.py",
    "test_ops_jit.py",
    "test_meta.py",
    "test_proxy_tensor.py",
    "test_schema_check.py",
    "functorch/test_ops.py",
    "functorch/test_vmap.py",
    "functorch/test_aotdispatch.py",
    "inductor/test_torchinductor_opinfo.py",
]


@pytest.mark.parametrize("file", FILES)
def test_operators_pass(file: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = Path(os.environ["GRAFT_TREE"]) / "test" / file
    added = [info.formatted_name for info in added_op_infos()]
    assert added
    # As unittest names them; with the device's name `affine` does not also match `affine_grid`.
    names = [word for name in added for word in ("-k", f"*_{name}_cpu*")]
    # Where a test file finds its neighbors, and where the tree's own torch cannot be imported instead.
    folders = [path.parent, REPOSITORY, PACKAGES]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders)), "PYTORCH_TEST_WITH_SLOW": "0"}
    command = [sys.executable, "-m", "tests.kit.opinfos", path, "-v", *names]
    done = subprocess.run(command, cwd=path.parent, env=variables, capture_output=True, text=True, check=False)
    ran = re.search(r"^Ran (\d+) tests?.*\n+(\w+.*)$", done.stderr, re.M)
    assert ran, done.stderr[-4000:]
    with capsys.disabled():
        print(f"\n{file}: {ran[1]} tests, {ran[2]}", end=" ")
    assert int(ran[1]) > 0
    failures = re.findall(r"^(?:FAIL|ERROR): (.*)$", done.stderr, re.M)
    assert done.returncode == 0, "\n".join([*failures, done.stderr[-3000:]])
