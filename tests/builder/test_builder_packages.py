"""The builder's packages: the same for everyone, verified by their hashes."""

from __future__ import annotations

import re

from graft.core.layout import PACKAGES
from packaging.requirements import Requirement


def listed(name: str) -> list[Requirement]:
    text = (PACKAGES / name).read_text(encoding="utf-8").replace("\\\n", "")
    lines = (re.sub(r"\s+(#|--hash).*", "", line) for line in text.splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith("#")]


def test_every_package_is_pinned_with_hashes() -> None:
    entries = re.split(r"\n(?=\S)", (PACKAGES / "requirements.txt").read_text(encoding="utf-8").strip())[1:]
    assert entries
    for entry in entries:
        assert re.match(r"[\w.-]+==\S+ ", entry), entry
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry


def test_what_is_wanted_is_pinned() -> None:
    pinned = {each.name for each in listed("requirements.txt")}
    assert pinned >= {each.name for each in listed("requirements.in")}
