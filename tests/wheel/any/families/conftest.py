"""Says for which operators the families know only what the operators themselves do."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal import added_opinfos
from torch.testing._internal.added_sample_inputs import reference


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for the operators whose OpInfos cannot tell what is missing or wrong."""
    from opinfos import OPERATORS

    added = [info.aten_name for info in OPERATORS if info.name in torch._added_operators.PUBLIC]
    derived = [name for name in added if added_opinfos.is_derived(name)]
    without = [name for name in added if reference(name) is None]
    for said, names in (
        ("samples.py does not state dtypes, so that a missing one or a missing derivative is not found", derived),
        ("samples.py has no reference, so that values are not compared", without),
    ):
        if names:
            terminalreporter.write_line(f"{', '.join(names)}: {said}")
