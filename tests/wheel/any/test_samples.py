"""The families test each added function, or there is a reason why not; wrong samples are a reason."""

from __future__ import annotations

import importlib
import importlib.util
import runpy
import sys
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch.testing._internal import added_opinfos, added_sample_inputs, common_methods_invocations
from torch.testing._internal.opinfo.core import OpInfo
from torch.utils._python_dispatch import TorchDispatchMode

PUBLIC = torch._added_operators.PUBLIC
ADDED = {info.name for info in common_methods_invocations._added_op_infos}
OF_PYTORCH = {info.name for info in common_methods_invocations.op_db} - ADDED
MODULE, INPUTS = (f"torch.testing._internal.{name}" for name in ("added_samples", "added_sample_inputs"))


def name_of(public: str) -> str:
    """The names in native_functions.yaml."""
    return PUBLIC[public].rpartition(".")[2]


@pytest.mark.parametrize("public", PUBLIC)
def test_there_is_an_op_info(public: str) -> None:
    if public in OF_PYTORCH:
        return
    try:
        added_opinfos.op_info(public, name_of(public))
    except added_sample_inputs.NoSamples as reason:
        pytest.skip(str(reason))


class Calls(TorchDispatchMode):
    """Records every operator that is called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(func.name())
        return func(*args, **(kwargs or {}))


@pytest.fixture
def described() -> str:
    """Return an added function that its samples describe."""
    for public in PUBLIC:
        info = next((info for info in common_methods_invocations._added_op_infos if info.name == public), None)
        if info and torch.float in info.dtypes and not hasattr(info, "left_out"):
            return public
    pytest.skip("the folder adds no function with samples of floating-point numbers")


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """Import the modules again with another text in samples.py. Return the content of ``added_opinfos``.

    In the text ``usual(name)`` is the function of the folder's own samples of an operator.
    """
    find, load, raw = importlib.util.find_spec, importlib.import_module, added_sample_inputs._raw

    def usual(name: str) -> Callable[..., Iterator[Any]]:
        return raw(added_sample_inputs.functional_overload(name), name)

    def write(text: str) -> dict[str, Any]:
        path = tmp_path / "added_samples.py"

        def import_module(name: str, package: str | None = None) -> Any:
            if name != MODULE:
                return load(name, package)
            module = ModuleType(MODULE)
            vars(module)["usual"] = usual
            exec(compile(text, str(path), "exec"), vars(module))
            return module

        monkeypatch.setattr(importlib.util, "find_spec", lambda name, *more: name == MODULE or find(name, *more))
        monkeypatch.setattr(importlib, "import_module", import_module)
        inputs = ModuleType(INPUTS)
        vars(inputs).update(runpy.run_path(str(added_sample_inputs.__file__)))
        monkeypatch.setitem(sys.modules, INPUTS, inputs)
        return runpy.run_path(str(added_opinfos.__file__))

    return write


def op_info_of(public: str, module: dict[str, Any]) -> OpInfo:
    """Return an operator's OpInfo as in op_db."""
    (info,) = (info for info in module["op_infos"](OF_PYTORCH) if info.name == public)
    return info


def test_import_calls_no_operator_and_no_samples(described: str, written: Any) -> None:
    text = "called = []\ndef {name}(make):\n    called.append(1)\n    yield from usual('{name}')(make)\n"
    with Calls() as calls:
        info = op_info_of(described, written(text.format(name=name_of(described))))
    called = sys.modules[INPUTS].added_samples.called
    assert not calls.names and not called
    assert torch.float in info.dtypes
    assert called and type(info) is OpInfo


def test_dtype_that_the_samples_refuse_is_not_one_of_the_operator(described: str, written: Any) -> None:
    """As ``yield -make(3)`` raises for bool."""
    text = (
        "import torch\ndef {name}(make):\n    if make(1).dtype == torch.float:\n        raise RuntimeError('no')\n"
        "    yield from usual('{name}')(make)\n"
    )
    name = name_of(described)
    # What the folder's OPINFO states does not count here.
    usual = op_info_of(described, written(f"{name} = usual('{name}')\n")).dtypes
    info = op_info_of(described, written(text.format(name=name)))
    assert torch.float in usual
    assert info.dtypes == usual - {torch.float}
    assert not hasattr(info, "left_out")


WRONG = {
    "a bug": ("def {name}(make):\n    yield make(3, 4)\n    raise KeyError('a')\n", "samples.py:3: KeyError: 'a'"),
    "other arguments": ("\ndef {name}(make):\n    yield make(3), *range(20)\n", "samples.py:2: "),
    "text of no Python": ("def {name}(make:\n", "samples.py:1: SyntaxError: "),
    "a module that is not there": ("\nimport no_such_module\n", "samples.py:2: ModuleNotFoundError: "),
    "an OPINFO of no OpInfo": ("{name} = usual('{name}')\nOPINFO = {{'{name}': {{'no_such': 1}}}}\n", "'no_such'"),
    "an OPINFO that is no dictionary": ("{name} = usual('{name}')\nOPINFO = {{'{name}': 3}}\n", "samples.py: OPINFO "),
}


@pytest.mark.parametrize("kind", WRONG)
def test_wrong_samples_skip_the_tests_of_the_operator_and_say_where(kind: str, described: str, written: Any) -> None:
    text, reason = (each.format(name=name_of(described)) for each in WRONG[kind])
    module = written(text)
    with pytest.raises(module["WrongSamples"]) as error:  # the failure of test_there_is_an_op_info
        module["op_info"](described, name_of(described))
    assert reason in str(error.value)
    info = op_info_of(described, module)
    assert info.dtypes == {torch.float}  # so that there are tests, which are skipped
    with pytest.raises(module["NoSamples"]) as error:
        list(info.sample_inputs("cpu", torch.float))
    assert reason in str(error.value)

    class Test(unittest.TestCase):
        def test(self) -> None:
            raise AssertionError("not skipped")

    for decorate in info.get_decorators("Test", "test", "cpu", torch.float, {}):
        Test.test = decorate(Test.test)  # type: ignore[method-assign]
    result = unittest.TestResult()
    Test("test").run(result)
    assert [why for _, why in result.skipped] == [str(error.value)]
