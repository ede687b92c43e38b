"""Kernels that are exchanged in a process under AddressSanitizer, by night.

ThreadSanitizer has not run on loads: `graft.load` has no kind of build for it. It could, without false reports: a
program whose threads call operators and run backward, compiled for it, reported nothing of the official libtorch, which
is not.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from clipped import TEXTS
from graft.core.layout import PATCHES, TorchVersion
from graft.inputs.pin import load_pin
from graft.inputs.toolchain import find_toolchain
from sessions import Folder, Session
from test_threads import TOOLS

from tests.kit.sanitize import sanitizer_variables

pytestmark = pytest.mark.slow

# The file of a kernel, and texts to exchange.
(KERNEL,) = (name for name, text in TEXTS.items() if "mul(limit)" in text)
EXCHANGES = """
def load(number):
    kernel.write_text(texts[number % 2])
    graft.load(folder)

def exchanges():
    for number in range(20):
        load(number)
        exchange(24, versions)

texts, right, versions = [kernel.read_text()], [result()], [built()]
texts.append(texts[0].replace("mul(limit)", "mul(limit).mul(10)"))
load(1)
right.append(result())
versions.append(built())
"""


@pytest.mark.parametrize("reads", ["what there is", "past the end"])
def test_exchanged_kernels_are_sanitized(reads: str, tmp_path: Path) -> None:
    """500 times, 20 of them by `graft.load`, while threads call the operator and run backward. A kernel that reads past
    the end is reported.
    """
    version = TorchVersion(Path(os.environ["GRAFT_BASE_FOLDER"]).parents[1].name)
    toolchain, log = find_toolchain(load_pin(PATCHES / version.release, version)), tmp_path / "reports"
    folder = Folder(tmp_path / "clipped", TEXTS)
    log.mkdir()
    with Session(tmp_path, **sanitizer_variables(toolchain, log=log / "of")) as session:
        session.run(TOOLS)
        session.load(folder.path)
        session.run(f"folder = {str(folder.path)!r}; kernel = Path(folder, {KERNEL!r})")
        session.run(EXCHANGES)
        assert session.value("right[0] != right[1]")
        if reads == "past the end":
            past = "volatile auto past = self.const_data_ptr<double>()[self.numel()]; (void)past; "
            folder.edit(KERNEL, "result.", f"{past}result.")
            session.load(folder.path)
            session.run("result()")
        else:
            assert session.value("stress(result, right, exchanges)") == ([], True)
        assert session.ended() == 0
    found = [path.read_text(errors="replace") for path in log.iterdir()]
    assert ["heap-buffer-overflow" in text for text in found] == [True] * (reads == "past the end"), found
