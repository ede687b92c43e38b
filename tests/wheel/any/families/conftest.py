"""Report the operators for which the families know only observed behavior."""

import os
from collections.abc import Iterator

import pytest
import torch
from _pytest._code.code import ExceptionChainRepr, ReprEntryNative, ReprTraceback
from graft.core.layout import native_folders
from torch.testing._internal import common_utils

from tests.kit.places import places_of
from tests.kit.samples import SAMPLES

NATIVES = native_folders(os.environ["GRAFT_NATIVE"]) if "GRAFT_NATIVE" in os.environ else ()

# PyTorch's advice in failures is for a checkout of PyTorch, which is not available.
common_utils.PRINT_REPRO_ON_FAILURE = False


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Put the places of the operator's formulas and kernels before PyTorch's message of a failure."""
    report = yield
    if report.failed and isinstance(report.longrepr, ExceptionChainRepr):
        from opinfos import OPERATORS

        named = [info for info in OPERATORS if f"_{info.formatted_name}_cpu" in item.name]
        if named and (places := places_of(max(named, key=lambda info: len(info.formatted_name)).aten_name, NATIVES)):
            lines = [f"{place}\n" for place in places]
            report.longrepr.chain.insert(0, (ReprTraceback([ReprEntryNative(lines)], None, "native"), None, None))
            crash = report.longrepr.reprcrash
            if crash:
                crash.message = f"{places[0]}\n{crash.message}"
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the operators whose OpInfos cannot detect a missing dtype or a wrong value."""
    from opinfos import OPERATORS

    added = [info.aten_name for info in OPERATORS if info.name in torch._added_operators.PUBLIC]
    derived = [name for name in added if "dtypes" not in SAMPLES.stated(name)]
    without = [name for name in added if SAMPLES.reference(name) is None]
    for said, names in (
        ("samples.py does not state dtypes, so that a missing one or a missing derivative is not found", derived),
        ("samples.py has no reference, so that values are not compared", without),
    ):
        if names:
            terminalreporter.write_line(f"{', '.join(names)}: {said}")
