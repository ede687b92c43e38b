"""Each added function is tested by the families, or there is a reason why not."""

from __future__ import annotations

import pytest
import torch
from torch.testing._internal.added_opinfos import NoSamples, WrongSamples, op_info
from torch.testing._internal.common_methods_invocations import op_db

KNOWN = {info.name for info in op_db}


@pytest.mark.parametrize("public", torch._added_operators.PUBLIC)
def test_there_is_an_op_info(public: str) -> None:
    if public in KNOWN:
        return
    try:
        op_info(public, torch._added_operators.PUBLIC[public].rpartition(".")[2])
    except WrongSamples:
        raise
    except NoSamples as reason:
        pytest.skip(str(reason))
