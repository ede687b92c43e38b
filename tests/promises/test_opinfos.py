"""PyTorch's own test files with the folder's operators, by the command that native/guides/test.md shows."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from graft.core.layout import REPOSITORY
from helpers import program, write
from place import Place

COMMAND = "python -m tests.kit.opinfos ~/pytorch/test/test_ops.py -k soft_clip"

# As PyTorch's test_ops.py begins and ends. A checkout of the same release is not at hand.
TEST_OPS = """
import torch
from torch.testing._internal.common_device_type import instantiate_device_type_tests, ops
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.common_utils import TestCase, run_tests


class TestCommon(TestCase):
    @ops(op_db, allowed_dtypes=[torch.float])
    def test_numpy_ref(self, device, dtype, op):
        for sample in op.sample_inputs(device, dtype):
            expected = op.ref(sample.input, *sample.args, **sample.kwargs)
            self.assertEqual(op(sample.input, *sample.args, **sample.kwargs), expected, exact_dtype=False)


instantiate_device_type_tests(TestCommon, globals())

if __name__ == "__main__":
    run_tests()
"""


def test_command_runs_the_tests_of_the_operator(plain: Place, tmp_path: Path) -> None:
    write(plain.home, {"pytorch/test/test_ops.py": TEST_OPS})
    program(plain.home / "bin/python", f'exec {sys.executable} "$@"')
    installed = plain.install(tmp_path / "installed")
    variables = {
        **os.environ,
        "CI": "true",
        "HOME": str(plain.home),
        "PATH": f"{plain.home / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "GRAFT_NATIVE": str(plain.home / "my_ops"),
        "PYTHONPATH": os.pathsep.join(map(str, (installed, REPOSITORY, REPOSITORY / "scripts"))),
    }

    def typed(command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-c", command], cwd=REPOSITORY, env=variables, capture_output=True, text=True, check=False
        )

    done = typed(COMMAND)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^Ran [1-9]\d* test", done.stderr, re.M), done.stderr
    done = typed(COMMAND.partition(" ~")[0])
    assert done.returncode == 1 and done.stderr.startswith("error: no test file of PyTorch is named"), done.stderr
