"""How ``make surfaces`` judges and shows surfaces; those themselves are in tests/wheel/surfaces."""

import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from graft.core.layout import REPOSITORY
from torch import Tensor
from torch.testing._internal.common_dtype import custom_types
from torch.testing._internal.opinfo.core import OpInfo, SampleInput

from tests.kit import surfaces
from tests.kit.subject import Subject, infos, why_left_out
from tests.kit.surface_table import marks_in, of_added, side_by_side
from tests.kit.surfaces import NO, NOT_THERE, YES, judge, lacking, measured

# A folder of surfaces. As the added operator, sinc is measured beside lerp and digamma.
SURFACES = """
import warnings
import pytest
from tests.kit.surfaces import surface

@surface("everywhere")
def test_everywhere(subject): subject.expected()

@surface("only PyTorch's own", "write it")
def test_missed(subject): assert subject.is_of_pytorch, "not there"

@surface("nowhere")
def test_nowhere(subject): raise ValueError("gone")

@surface("of two")
def test_of_two(subject): subject.require_pointwise() or pytest.skip("one argument")

@surface("quiet")
def test_quiet(subject): subject.is_of_pytorch or warnings.warn("a loop")

def test_there_are_samples(name): assert name == "sinc"
"""


def run_surfaces(folder: Path, *options: str) -> tuple[str, dict[str, dict[str, str]]]:
    (folder / "test_it.py").write_text(SURFACES)
    results = folder / "results.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.kit.surfaces", f"--junit-xml={results}"]
    command += [f"--config-file={REPOSITORY / 'pyproject.toml'}", "--operators=sinc", *options, str(folder)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stdout
    return done.stdout, marks_in(results)


@pytest.mark.parametrize("processes", [1, 2])
def test_operator_is_compared_with_those_of_pytorch(tmp_path: Path, processes: int) -> None:
    said, marks = run_surfaces(tmp_path, *([f"--numprocesses={processes}"] if processes > 1 else []))
    assert "sinc: only PyTorch's own: AssertionError: not there" in said and "  next: write it" in said
    assert "sinc: quiet: UserWarning: a loop" in said and "as lerp: ValueError: gone" in said
    assert "2 failed" in said
    assert side_by_side(marks).splitlines() == [
        "                    sinc  torch.lerp  torch.digamma",
        "everywhere          yes   yes         yes",
        "only PyTorch's own  NO    yes         yes",
        "nowhere             NO    NO          NO",
        "of two              -     -           -",
        "quiet               NO    yes         yes",
    ]
    assert of_added(marks)["quiet"] == "NO: sinc"


def test_titles_and_operators_can_be_chosen(tmp_path: Path) -> None:
    said, marks = run_surfaces(tmp_path, "-k", "quiet")
    assert list(marks["sinc"]) == ["quiet"], said


def test_delivery_of_which_nothing_was_found_does_not_say_yes(tmp_path: Path) -> None:
    """As if torch crashed at import."""
    (tmp_path / "results.xml").write_bytes(b"")
    crashed = of_added(marks_in(tmp_path / "results.xml"))
    shown = side_by_side({"wheel": {"torch.x": "yes"}, "thin-wheel": crashed})
    assert shown.splitlines()[1:] == ["torch.x  yes    not measured"]


def test_accepted_difference_must_be_one(monkeypatch: pytest.MonkeyPatch) -> None:
    reasons = {("usual", "sinc"): "because"}
    monkeypatch.setattr(surfaces.SAMPLES, "surfaces", reasons)
    sinc = Subject("sinc", infos()["sinc"])

    def fail(subject: Subject) -> None:
        raise ValueError(subject)

    with pytest.raises(pytest.xfail.Exception, match="because"):
        judge(fail, sinc, {}, "usual", "")
    tests: list[Callable[[Subject], object]] = [lambda subject: None, lambda subject: pytest.skip("no method")]
    for test in tests:
        with pytest.raises(AssertionError, match="sinc: usual: there is no difference any more"):
            judge(test, sinc, {}, "usual", "")


def surface_of(name: str, file: str = "test_names") -> Callable[..., None]:
    """Return a test of a file in tests/wheel/surfaces."""
    scope: dict[str, Callable[..., None]] = {"__name__": file}
    exec((REPOSITORY / f"tests/wheel/surfaces/{file}.py").read_text(), scope)
    return scope[name]


def mark_of(test: str, operator: str) -> str:
    return measured(surface_of(test), Subject(operator, infos()[operator]), {})[0]


def test_operator_that_is_not_there_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert mark_of("test_function", "lerp") == YES
    monkeypatch.setattr(torch, "lerp", torch.add)
    assert mark_of("test_function", "lerp") == NO


def test_form_that_the_schema_lacks_is_no_fault() -> None:
    assert mark_of("test_in_place", "matmul") == NOT_THERE


def of_index(index: Tensor, x: Tensor) -> Tensor:
    """Refuses negative indices."""
    return x.gather(0, index)


def samples_of_index(_: OpInfo, device: str, dtype: torch.dtype, requires_grad: bool, **options: object) -> object:
    x = torch.rand(3, dtype=dtype, device=device, requires_grad=requires_grad)
    return iter([SampleInput(torch.tensor(2), args=(x,))])


@pytest.mark.parametrize(
    ("test", "arguments"),
    [
        ("test_vmapped", {}),
        ("test_transformed", {"transform": torch.func.grad}),
        ("test_transformed", {"transform": torch.func.jacfwd}),
    ],
)
def test_index_is_no_number_to_differentiate_or_change(test: str, arguments: dict[str, object]) -> None:
    info = OpInfo("of_index", op=of_index, dtypes=custom_types(torch.double), sample_inputs_func=samples_of_index)
    mark, error = measured(surface_of(test, "test_derivatives"), Subject("of_index", info), arguments)
    assert mark == YES, error


def test_docstring_of_a_method_says_what_is_returned() -> None:
    assert [mark_of("test_method_docstring", name) for name in ("lerp", "aminmax", "outer")] == [YES] * 3


def test_operator_without_samples_says_what_to_write() -> None:
    assert (
        why_left_out("fft.nothing") == "there is no such operator in op_db; write `def nothing(make)` into samples.py"
    )


def test_composed_operator_is_compared_with_composed_ones() -> None:
    references = [["outer"], ["lerp"]]
    assert lacking({"outer": NO, "lerp": YES}, references) == ["outer"]
    assert lacking({"outer": NOT_THERE, "lerp": YES}, references) == []


def warn_in(module: str) -> None:
    """Warn like a line of ``module``."""
    warnings.warn_explicit("old", FutureWarning, "a.py", 1, module=module, registry={})


def test_only_warnings_that_the_folder_causes_are_faults() -> None:
    warn_in("torch._inductor.lowering")
    with pytest.raises(FutureWarning, match="old"):
        warn_in("torch.nn.modules.mine")
