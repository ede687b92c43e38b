"""The builder's packages: the same for everyone, verified by their hashes."""

from __future__ import annotations

import re

from graft.core.layout import PACKAGES, REPOSITORY
from graft.inputs.pyproject import read_toml
from packaging.requirements import Requirement

ENTRIES = re.split(r"\n(?=\S)", (PACKAGES / "requirements.txt").read_text(encoding="utf-8").strip())[1:]


def test_every_package_is_pinned_with_hashes() -> None:
    assert ENTRIES
    for entry in ENTRIES:
        assert re.match(r"[\w.-]+==\S+ ", entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry


def test_what_is_wanted_is_pinned() -> None:
    settings = read_toml(REPOSITORY / "pyproject.toml")
    wanted = [*settings["project"]["dependencies"], *settings["dependency-groups"]["checkout"]]
    pinned = {entry.partition("==")[0] for entry in ENTRIES}
    assert pinned | {"pip"} >= {Requirement(each).name for each in wanted}
