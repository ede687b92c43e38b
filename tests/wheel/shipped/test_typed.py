"""typed.py: mypy --strict and pyright report exactly the lines that it marks."""

from collections.abc import Callable
from pathlib import Path

import pytest
from type_checkers import CHECKERS, complaints, marked_lines

pytestmark = pytest.mark.unsanitized("no operator is called")

PROGRAM = (Path(__file__).parent / "typed.py").read_text()


@pytest.mark.parametrize("checker", CHECKERS)
def test_wrong_calls_are_reported_and_no_others(checker: Callable[[str, Path], dict[int, str]], tmp_path: Path) -> None:
    assert len(marked_lines(PROGRAM)) > 25
    assert complaints(PROGRAM, checker(PROGRAM, tmp_path)) == []
