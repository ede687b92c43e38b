"""The build with sanitizers shares nothing with the normal one that either could damage."""

from __future__ import annotations

from pathlib import Path

from graft.core.layout import SANITIZED, Layout, TorchVersion
from graft.inputs.toolchain import Toolchain


def test_sanitized_build_has_folders_of_its_own() -> None:
    layout = Layout(TorchVersion("2.13.0"), (Path("/operators"),), Path("/out"))
    sanitized = layout.sanitized()
    assert sanitized.base == layout.base
    for name in ("out", "work", "sources", "generated", "objects"):
        ours, theirs = getattr(sanitized, name), getattr(layout, name)
        assert ours != theirs and theirs not in ours.parents and ours not in theirs.parents
    # Compilers write relative paths into objects.
    assert len(sanitized.work.parts) == len(layout.work.parts)
    assert sanitized.out != Layout(TorchVersion("2.13.0"), (Path("/others"),), Path("/out")).sanitized().out


def test_sanitizers_have_the_last_word_on_optimization() -> None:
    toolchain = Toolchain("g++", "g++ 12", "c++20")
    sanitized = toolchain.of_kind(SANITIZED)
    assert sanitized.kind != toolchain.kind  # and so the wheel's version differs
    for capability in toolchain.capabilities:
        flags = [*sanitized.flags, *sanitized.capability_flags(capability)]
        assert [flag for flag in flags if flag.startswith("-O")][-1] == "-O1"
        assert "-fsanitize=address,undefined" in flags
        assert not any("sanitize" in flag for flag in (*toolchain.flags, *toolchain.capability_flags(capability)))
