"""Names, variants, help and overrides in Python."""

import ast
import pickle
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, overrides
from torch.testing import assert_close
from torch.testing._internal.generated import annotated_fn_args

from tests.kit.subject import Subject, first_result, left_out
from tests.kit.surfaces import DOCUMENTED, GENERATED, IN_PLACE, METHOD, NAMES, OUT, STATELESS, surface, surfaces


def test_there_are_samples(name: str) -> None:
    assert not left_out(name), f"{name}: {left_out(name)}"


@surface("torch.op(x)")
def test_function(subject: Subject) -> None:
    module, _, short = f"torch.{subject.name}".rpartition(".")
    owner = torch._added_operators.resolve(module) if module != "torch" else torch
    assert getattr(owner, short) is subject.function
    assert short in dir(owner)
    subject.expected()


@surface("x.op()", METHOD)
def test_method(subject: Subject) -> None:
    call, tensors = subject.on_tensors(subject.method)
    assert_close(call(*tensors), subject.expected())


@surface("x.op_()", IN_PLACE)
def test_in_place(subject: Subject) -> None:
    call, tensors = subject.in_place_on_tensors()
    assert call(*tensors) is tensors[0]
    assert_close(tensors[0], subject.expected())


@surface("torch.op(x, out=y)", OUT)
def test_out(subject: Subject) -> None:
    expected = subject.expected()
    args, kwargs = subject.sample()
    result = torch.empty_like(expected)
    assert subject.out(*args, **kwargs, out=result) is result
    assert_close(result, expected)


@surface("help(torch.op) begins with the signature", DOCUMENTED)
def test_docstring(subject: Subject) -> None:
    short = subject.name.rpartition(".")[2]
    assert re.match(rf"\s*{short}\(\w+.*\)", subject.function.__doc__ or ""), subject.function.__doc__


@surface("Tensor.op.__doc__", DOCUMENTED)
def test_method_docstring(subject: Subject) -> None:
    short = subject.name.rpartition(".")[2]
    # Several results are listed in parentheses, with their names if they have any.
    kinds = [str(each.type) for each in subject.overload._schema.returns]
    returned = r"\(" if len(kinds) > 1 else "Tensor$" if kinds == ["Tensor"] else r"\S"
    assert re.match(rf"\s*{short}\(.*\) -> {returned}", subject.method.__doc__ or "", re.M), subject.method.__doc__


@surface("Tensor.op_.__doc__", DOCUMENTED)
def test_in_place_docstring(subject: Subject) -> None:
    assert "In-place version of" in (subject.in_place.__doc__ or ""), subject.in_place.__doc__


@cache
def _stub(file: str) -> dict[str, ast.FunctionDef]:
    torch_itself = Path(torch.__file__).parent
    partial = torch_itself.with_name("torch-stubs") / file  # of a thin wheel; type checkers read it first
    text = (partial if partial.is_file() else torch_itself / file).read_text(encoding="utf-8")
    return {node.name: node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}


@surfaces(
    "is_method",
    {
        "type stub of the function, with its docstring": (False, DOCUMENTED),
        "type stub of the method, with its docstring": (True, DOCUMENTED),
    },
)
def test_stub(subject: Subject, is_method: bool) -> None:
    if "." in subject.name and not is_method:
        pytest.skip("its module is written in Python")
    stub = _stub("_C/__init__.pyi" if is_method else "_C/_VariableFunctions.pyi")
    assert ast.get_docstring(stub[subject.method.__name__ if is_method else subject.name])


@surface("a wrong argument is refused by its name", NAMES)
def test_wrong_argument(subject: Subject) -> None:
    with pytest.raises(TypeError, match=rf"^{subject.function.__name__}\(\)"):
        subject.function(object())


@surface("the arguments' names are keywords", NAMES)
def test_keywords(subject: Subject) -> None:
    args, kwargs = subject.sample()
    names = [argument.name for argument in subject.overload._schema.arguments]
    names = ["input" if name == "self" else name for name in names]
    result = subject.function(**dict(zip(names, args, strict=False)), **kwargs)
    assert_close(first_result(result), subject.expected())


class Overriding(Tensor):
    """Records the functions that it is called for."""

    asked: list[Any] = []  # noqa: RUF012  # of the class, on purpose

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.asked.append(func)
        return super().__torch_function__(func, types, args, kwargs or {})


@surfaces(
    "form",
    {
        "__torch_function__ is asked for the function": ("function", GENERATED),
        "__torch_function__ is asked for the method": ("method", METHOD),
    },
)
def test_torch_function(subject: Subject, form: str) -> None:
    function = getattr(subject, form)
    call, tensors = subject.on_tensors(function)
    Overriding.asked.clear()
    result = call(*(tensor.as_subclass(Overriding) for tensor in tensors))
    assert function in Overriding.asked
    assert isinstance(result, Overriding)


@surface("a TorchFunctionMode sees it")
def test_torch_function_mode(subject: Subject) -> None:
    seen = []

    class Mode(overrides.TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(func)
            return func(*args, **(kwargs or {}))

    call, tensors = subject.on_tensors()
    with Mode():
        call(*tensors)
    assert subject.function in seen


@surfaces(
    "is_known",
    {
        "torch.overrides.get_overridable_functions()": (
            lambda f: any(f in functions for functions in overrides.get_overridable_functions().values()),
            GENERATED,
        ),
        "torch.overrides.get_testing_overrides()": (lambda f: f in overrides.get_testing_overrides(), GENERATED),
        # It returns one of its names: torch.nn.functional may have another.
        "torch.overrides.resolve_name()": (
            lambda f: torch._added_operators.resolve(overrides.resolve_name(f) or "") is f,
            GENERATED,
        ),
        "arguments for PyTorch's test_overrides.py": (lambda f: f in annotated_fn_args.annotated_args, GENERATED),
        "pickled by its name": (lambda f: pickle.loads(pickle.dumps(f)) == f, STATELESS),
    },
)
def test_known(subject: Subject, is_known: Callable[[Callable[..., Any]], bool]) -> None:
    assert is_known(subject.function)
