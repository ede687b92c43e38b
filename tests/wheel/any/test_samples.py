"""The families test each added function, or there is a reason why not; wrong samples are a reason."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from helpers import write
from torch.testing._internal.common_methods_invocations import op_db
from torch.testing._internal.opinfo.core import OpInfo

from tests.kit.made_up import NoSamples
from tests.kit.opinfos import added_op_infos, aten_name, op_info
from tests.kit.samples import SAMPLES, Samples, WrongSamples, tensors_of

PUBLIC = torch._added_operators.PUBLIC
INFOS: dict[str, OpInfo] = {info.name: info for info in added_op_infos()}
OF_PYTORCH = {info.name for info in op_db} - set(INFOS)


@pytest.mark.parametrize("public", PUBLIC)
def test_there_is_an_op_info(public: str) -> None:
    if public in OF_PYTORCH:
        return
    try:
        op_info(public)
    except NoSamples as reason:
        pytest.skip(str(reason))
    assert public in INFOS and INFOS[public] in op_db


@pytest.fixture
def described() -> str:
    """Return an added function that its samples describe."""
    for public, info in INFOS.items():
        if public in PUBLIC and torch.float in info.dtypes:
            return public
    pytest.skip("the folder adds no function with samples of floating-point numbers")


@pytest.fixture
def written(described: str, tmp_path: Path) -> Callable[[str], Samples]:
    """Return the samples in another ``samples.py``. In its text ``{name}`` is the operator ``described``, and
    ``usual(make)`` yields its samples.
    """
    name = aten_name(described)
    usual = f"def usual(make):\n    return SAMPLES._source({name!r})(make)\n"
    head = f"from tests.kit.samples import SAMPLES\n{usual}"

    def read(text: str) -> Samples:
        write(tmp_path, {"samples.py": text.replace("HEAD\n", head).replace("{name}", name)})
        return Samples([tmp_path])

    return read


def test_dtype_that_the_samples_refuse_is_not_one_of_the_operator(
    described: str, written: Callable[[str], Samples]
) -> None:
    """For example, ``yield -make(3)`` raises an error for bool."""
    refusing = (
        "import torch\nHEAD\ndef {name}(make):\n    if make(1).dtype == torch.float:\n"
        "        raise RuntimeError('no')\n    yield from usual(make)\n"
    )
    # The other samples.py has no OPINFO, so the dtypes are found by calls.
    usual = op_info(described, written("HEAD\n{name} = usual\n")).dtypes
    assert torch.float in usual
    assert op_info(described, written(refusing)).dtypes == usual - {torch.float}


WRONG = {
    "a bug": ("def {name}(make):\n    yield make(3, 4)\n    raise KeyError('a')\n", "samples.py:3: KeyError: 'a'"),
    "other arguments": ("\ndef {name}(make):\n    yield make(3), *range(20)\n", "samples.py:2: "),
    "text of no Python": ("def {name}(make:\n", "samples.py:1: SyntaxError: "),
    "a module that is not there": ("\nimport no_such_module\n", "samples.py:2: ModuleNotFoundError: "),
    "an OPINFO of no OpInfo": ("HEAD\n{name} = usual\nOPINFO = {'{name}': {'no_such': 1}}\n", "'no_such'"),
    "an OPINFO that is no dictionary": ("HEAD\n{name} = usual\nOPINFO = {'{name}': 3}\n", "samples.py: OPINFO "),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_samples_are_an_error_that_says_where(
    kind: str, described: str, written: Callable[[str], Samples]
) -> None:
    text, reason = WRONG[kind]
    with pytest.raises(WrongSamples) as error:
        op_info(described, written(text))
    assert reason in str(error.value)


SEVERAL = """SCALE = {scale}
OPINFO = {{"{name}": dict(scale=SCALE)}}
SURFACES = {{("title", "{name}"): "a reason"}}


def _helper():
    return SCALE


def {name}(make):
    yield _helper()
"""


def test_samples_keep_what_each_folder_calls_its_own(tmp_path: Path) -> None:
    """Two folders have a helper and a constant of the same name; a third folder has no samples."""
    for scale, name in enumerate(("one", "two")):
        write(tmp_path / name, {"samples.py": SEVERAL.format(name=name, scale=scale)})
    samples = Samples([tmp_path / name for name in ("one", "none", "two")])
    assert [list(samples.functions[name](None)) for name in ("one", "two")] == [[0], [1]]
    assert [samples.stated(name) for name in ("one", "two", "three")] == [{"scale": 0}, {"scale": 1}, {}]
    assert samples.surfaces == {("title", "one"): "a reason", ("title", "two"): "a reason"}
    assert not [path for path in tmp_path.rglob("*") if path.suffix == ".pyc"]


# The most memory that eight copies of an input may take, for example as a batch.
LARGEST_BATCH = 64 << 20


@pytest.mark.parametrize("public", INFOS)
def test_inputs_are_so_small_that_tests_can_copy_them(public: str) -> None:
    """PyTorch's own tests also copy the inputs of wrong calls, and of an expanded input all elements."""
    info, dtype = INFOS[public], max(INFOS[public].dtypes, key=lambda each: each.itemsize)
    given = [*info.sample_inputs("cpu", dtype)]
    given += [wrong.sample_input for wrong in info.error_inputs("cpu")] if info.error_inputs_func else []
    for sample in given:
        for tensor in tensors_of((sample.input, sample.args, sample.kwargs)):
            assert 8 * tensor.numel() * tensor.itemsize <= LARGEST_BATCH, (public, list(tensor.shape))


def test_each_function_is_named_after_an_operator() -> None:
    """``make check`` reports it with a place, but no build runs if only ``samples.py`` changed."""
    roots = {name.partition("::")[2].partition(".")[0] for name in torch._added_operators.OPERATORS}
    names = {f"{root}{of}" for root in roots for of in ("", "_reference", "_errors")}
    for name, function in SAMPLES.functions.items():
        is_own = str(getattr(function, "__module__", "")).startswith("graft_samples_")
        assert name in names or name.startswith("_") or not is_own
