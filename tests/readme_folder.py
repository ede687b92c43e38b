"""``python tests/readme_folder.py FOLDER``: write the native folder that the README shows, file by file.

To its ``samples.py`` is added what the tests compare the operator with.
"""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
_SAMPLES = re.compile(r"^  ```python\n(  def soft_clip\(make\).*?)^  ```$", re.M | re.S)
# What the README leaves to the tests to find out, so that they fail where it is not so.
_STATED = """

def soft_clip_reference(input, limit=1):
    return np.tanh(input.numpy() / limit) * limit


def soft_clip_errors(make):
    yield (make(3), "x"), "must be Number, not str", TypeError


OPINFO = {
    "soft_clip": {
        "dtypes": all_types_and_complex_and(torch.bool, torch.half, torch.bfloat16),
        "supports_out": False,
        "supports_forward_ad": True,
        "supports_fwgrad_bwgrad": True,
    }
}
"""
_IMPORTS = """import numpy as np
import torch
from torch.testing._internal.common_dtype import all_types_and_complex_and


"""
_FILE = re.compile(r"^`~/my_ops/(\S+)` [^\n]*:\n\n```\w+\n(.*?)^```$", re.M | re.S)


def main() -> None:
    folder = Path(sys.argv[1])
    files = _FILE.findall(README.read_text())
    assert len(files) == 4, (
        "the README is to show native_functions.yaml, derivatives.yaml, a kernel and a decomposition"
    )
    (samples,) = _SAMPLES.findall(README.read_text())
    files.append(("samples.py", _IMPORTS + textwrap.dedent(samples) + _STATED))
    for name, text in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
