"""``make surfaces`` reports what is missing; the target itself prints the table."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

from tests.kit.surfaces import python
from tests.kit.surfaces.__main__ import PARTS
from tests.kit.surfaces.remedies import remedy
from tests.kit.surfaces.subject import NotThere, Subject, subjects
from tests.kit.surfaces.table import NO, NOT_THERE, YES, Cell, Surface, differences, lacking, measure, row


@pytest.fixture
def lerp() -> Subject:
    (found,), without = subjects(["lerp", "no_such_operator"])
    assert [text.partition(":")[0] for text in without] == ["no_such_operator"]
    return found


def test_operator_that_is_not_there_is_found(lerp: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    surface = next(each for each in python.SURFACES.all if each.title == "torch.op(x)")
    assert measure(surface, lerp) == Cell(YES)
    monkeypatch.setattr(torch, "lerp", torch.add)
    assert measure(surface, lerp).mark == NO


def test_form_that_the_schema_lacks_is_no_fault(lerp: Subject) -> None:
    surface = next(each for each in python.SURFACES.all if each.title == "x.op_()")
    without = replace(lerp, info=next(info for info in op_db if info.name == "matmul"))
    assert measure(surface, without) == Cell(NOT_THERE, "no in-place form")


def test_warning_is_a_fault(lerp: Subject) -> None:
    def warn(_: Subject) -> None:
        warnings.warn("a loop", stacklevel=1)

    assert measure(Surface("quiet", warn), lerp) == Cell(NO, "UserWarning: a loop")


def warn_in(module: str) -> None:
    """Warn like a line of ``module``."""
    warnings.warn_explicit("old", FutureWarning, "a.py", 1, module=module, registry={})


def test_only_warnings_that_the_folder_causes_are_faults(lerp: Subject) -> None:
    assert measure(Surface("upstream", lambda _: warn_in("torch._inductor.lowering")), lerp) == Cell(YES)
    assert measure(Surface("own", lambda _: warn_in("torch.nn.modules.mine")), lerp).mark == NO
    # The tests of a wheel do the same.
    warn_in("torch._inductor.lowering")
    with pytest.raises(FutureWarning, match="old"):
        warn_in("mine")


GENERATED = {
    "torch.op(x)",
    "torch.ops.aten.op",
    "__torch_function__ is asked for the function",
    "a TorchFunctionMode sees it",
    "torch.overrides.get_overridable_functions()",
    "torch.overrides.get_testing_overrides()",
    "torch.overrides.resolve_name()",
    "arguments for PyTorch's test_overrides.py",
    "the profiler names it",
}


def test_every_surface_has_a_remedy() -> None:
    titles = [surface.title for part in PARTS for surface in part.SURFACES.all]
    general = remedy("a title of no kind")
    found = {title: remedy(title) for title in titles}
    assert (
        "derivatives.yaml" in found["gradcheck"]
        and "decompositions.py" in found["Inductor fuses it with its neighbors"]
    )
    # What is generated from the schema alone is bound, named and registered, independent of the folder's files.
    generated = {title for title in titles if found[title] == general}
    assert generated <= GENERATED, generated - GENERATED


def test_docstring_of_a_method_says_what_is_returned(lerp: Subject) -> None:
    surface = next(each for each in python.SURFACES.all if each.title == "Tensor.op.__doc__")
    assert measure(surface, lerp) == Cell(YES)
    for name in ("aminmax", "outer"):
        other = replace(lerp, name=name, info=next(info for info in op_db if info.name == name))
        assert measure(surface, other) == Cell(YES)


def test_only_what_pytorch_s_own_have_is_missed() -> None:
    cells = {
        ("usual", "mine"): Cell(NO, "not there"),
        ("usual", "lerp"): Cell(YES),
        ("unusual", "mine"): Cell(NO),
        ("unusual", "lerp"): Cell(NO),
        ("mended", "mine"): Cell(YES),
        ("mended", "lerp"): Cell(YES),
    }
    mine = {"mine": [["lerp"]]}
    assert differences(cells, mine, {}) == ["mine: usual: not there"]
    assert differences(cells, mine, {("usual", "mine"): "because"}) == []
    (stale,) = differences(cells, mine, {("usual", "mine"): "", ("mended", "mine"): "because"})
    assert stale.startswith("mine: mended: there is no difference any more")
    assert row(cells, "usual", ["mine", "lerp"], 7) == "usual    NO    yes"


def test_composed_operator_is_compared_with_composed_ones() -> None:
    cells = {
        ("one node", "mine"): Cell(NO),
        ("one node", "outer"): Cell(NO),
        ("one node", "lerp"): Cell(YES),
        ("in-place", "mine"): Cell(NO, "not there"),
        ("in-place", "outer"): Cell(NOT_THERE),
        ("in-place", "lerp"): Cell(YES),
    }
    references = [["outer"], ["lerp"]]
    assert lacking(cells, "one node", references) == ["outer"]
    assert lacking(cells, "in-place", references) == []
    assert differences(cells, {"mine": references}, {}) == ["mine: in-place: not there"]


def test_reason_is_kept() -> None:
    with pytest.raises(NotThere, match="no method"):
        Subject._form(None, "method")
