"""The table of options: what reads it, and the README's copy."""

from __future__ import annotations

from graft import cli
from graft.options import NAMES, OPTIONS

from tests.kit import __main__ as kit
from tests.kit.options_table import README, with_table

VERBS = (*cli.VERBS, *kit.VERBS)


def test_readme_has_the_table_of_options() -> None:
    text = README.read_text(encoding="utf-8")
    assert text == with_table(text), "run `PYTHONPATH=scripts python -m tests.kit.options_table`"


def test_each_option_is_taken_and_each_name_is_one_s_own() -> None:
    taken = {key for verb in VERBS for key in verb.takes.split()}
    assert taken == OPTIONS.keys()
    for names in ([name.word for name in NAMES], [name.key for name in NAMES], [name.variable for name in NAMES]):
        assert len({*names}) == len(names)
    assert all(option.key == key for key, option in OPTIONS.items())
