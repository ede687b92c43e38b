"""The table of options: what reads it, and the PAGE's copy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from graft import cli
from graft.core.extra_flags import NO_EXTRA
from graft.options import INSTALLED, NAMES, OPTIONS
from graft.session.building import Wanted
from helpers import Patch

from tests.kit import __main__ as kit
from tests.kit.options_table import PAGE, with_table

VERBS = (*cli.VERBS, *kit.VERBS)


def test_readme_has_the_table_of_options() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert text == with_table(text), "run `PYTHONPATH=scripts python -m tests.kit.options_table`"


def test_each_option_is_taken_and_each_name_is_one_s_own() -> None:
    taken = {key for verb in VERBS for key in verb.takes.split()}
    assert taken == OPTIONS.keys()
    for names in ([name.word for name in NAMES], [name.key for name in NAMES], [name.variable for name in NAMES]):
        assert len({*names}) == len(names)
    assert all(option.key == key for key, option in OPTIONS.items())


def test_graft_load_reads_the_environment(tmp_path: Path, monkeypatch: Patch) -> None:
    """The folder and the torch are those of the process; the GPUs of this machine are a default."""
    environment: Any = None
    for name, value in {"GRAFT_PIN": "2.14.1", "GRAFT_NATIVE": "/other", "MAX_JOBS": "3"}.items():
        monkeypatch.setenv(name, value)
    wanted = Wanted(tmp_path, "ops", NO_EXTRA, "", environment, "loaded", "80", {})
    request = wanted.request
    assert (request.pin, request.native, request.jobs) == (INSTALLED, (tmp_path,), 3)
    assert request.cuda_archs == "80"
    monkeypatch.setenv("GRAFT_JOBS", "4")
    monkeypatch.setenv("GRAFT_CUDA_ARCHS", "90")
    assert (wanted.request.jobs, wanted.request.cuda_archs) == (4, "90")
