"""Surfaces: the places where an operator shows up, compared with PyTorch's own operators. A plugin of pytest.

A test in ``tests/wheel/surfaces`` is one surface. It gets a ``subject``: an added operator, or one of PyTorch's own. It
raises if the operator is not there, and skips if the schema has no such variant. A test of an added operator fails
unless those of PyTorch's own fail, too, or ``SURFACES`` in the folder's ``samples.py`` says why, as
``{(title, name): reason}``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch

from .samples import SAMPLES
from .subject import KERNELS, Subject, infos, why_left_out

# The results of a test.
YES, NO, NOT_THERE = "yes", "NO", "-"

# What to do where an operator is missing. The default is for what the schema alone decides.
GENERATED = "run `make clean` and build again; if this remains, report it: it is generated from the schema"
FORMULA = "fix the formulas in derivatives.yaml"
META = (
    "write a structured kernel, or a meta function in python/_meta_registrations.py, that computes the "
    "result's shape, dtype and strides from those of the arguments"
)
SYMBOLIC = f"use SymInt sizes, with x.sym_size(i); {META}"
BATCHED = "use operators with batching rules in the kernel and the formulas, and sizes from the arguments"
COMPLIANT = f"call only operators; {META}"
SCHEMA_TYPES = "use only the types of the schema, and call no Python code of your own"
DOCUMENTED = "write docs/NAME.rst without the signature, which comes from the schema"
METHOD = "write `variants: function, method` into native_functions.yaml"
IN_PLACE = "write `name_(Tensor(a!) self, ...)` into native_functions.yaml, with a kernel for it"
OUT = "write `name.out(..., *, Tensor(a!) out)` into native_functions.yaml, or `autogen: name.out`"
NAMES = "use the schema's own names; only the first tensor may be `self`"
STATELESS = "keep no state outside of tensors"

Test = Callable[..., None]


def surface(title: str, remedy: str = GENERATED) -> pytest.MarkDecorator:
    """Mark a test as the surface ``title``; ``remedy`` says what to do where an operator is missing."""
    return pytest.mark.surface(title, remedy)


def surfaces(name: str, cases: Mapping[str, tuple[object, str]]) -> pytest.MarkDecorator:
    """Mark a test as several surfaces: by title, the value of its argument ``name``, and the remedy."""
    values = [pytest.param(value, marks=surface(title, todo), id=title) for title, (value, todo) in cases.items()]
    return pytest.mark.parametrize(name, values)


def measured(test: Test, subject: Subject, arguments: Mapping[str, object]) -> tuple[str, BaseException | None]:
    """Run a test of a surface on an operator. Return the result and what it raised."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    try:
        test(subject=subject, **arguments)
    except pytest.skip.Exception as reason:
        return NOT_THERE, reason
    except Exception as error:
        return NO, error
    return YES, None


def lacking(marks: Mapping[str, str], references: Sequence[Sequence[str]]) -> list[str]:
    """Return the operators of PyTorch's own that lack a surface, too; none if one of them has it.

    Those of the same kind decide, unless none of them has such a variant.
    """
    for names in references:
        if {marks[name] for name in names} != {NOT_THERE}:
            return [] if YES in (marks[name] for name in names) else [name for name in names if marks[name] == NO]
    return []


def judge(test: Test, subject: Subject, arguments: Mapping[str, object], title: str, remedy: str) -> None:
    """Run a test of a surface on an operator, and compare it with PyTorch's own if the operator is added.

    Raises:
        AssertionError: PyTorch's own are there; or ``SURFACES`` names a difference that is none.
    """
    mark, error = measured(test, subject, arguments)
    reason = SAMPLES.surfaces.get((title, subject.name))
    if mark != NO and reason:
        raise AssertionError(f"{subject.name}: {title}: there is no difference any more; remove it from SURFACES")
    if error is None:
        return
    if mark == NOT_THERE:
        raise error
    said = f"{type(error).__name__}: {(str(error).strip().splitlines() or [''])[0]}"
    if reason or subject.is_of_pytorch:
        pytest.xfail(reason or said)
    known = infos()
    references = [Subject(name, known[name]) for names in subject.references for name in names]
    marks = {each.name: measured(test, each, arguments)[0] for each in references}
    if like := lacking(marks, subject.references):
        pytest.xfail(f"as {like[0]}: {said}")
    raise AssertionError(f"{subject.name}: {title}: {said}\n  next: {remedy}") from error


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that chooses operators."""
    parser.addoption("--operators", default="", help="added operators to measure, by commas (default: all)")


def pytest_configure(config: pytest.Config) -> None:
    """Ignore a warning for every operator that returns a complex tensor, for example torch.fft.rfft2."""
    config.addinivalue_line("filterwarnings", "ignore:Torchinductor does not support code generation for complex")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each surface on the chosen operators and PyTorch's own; ``name`` is each chosen operator's name."""
    names = list(filter(None, metafunc.config.getoption("operators").split(","))) or list(torch._added_operators.PUBLIC)
    if "name" in metafunc.fixturenames:
        metafunc.parametrize("name", names)
    if "subject" in metafunc.fixturenames:
        known = infos()
        ours = [Subject(name, known[name]) for name in names if not why_left_out(name)]
        references = dict.fromkeys(name for each in ours for kind in reversed(each.references) for name in kind)
        every = [*ours, *(Subject(name, known[name]) for name in references or KERNELS if name not in names)]
        metafunc.parametrize("subject", every, ids=[each.name for each in every])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Record the row and the column of each test in pytest's XML, and let ``-k`` find titles."""
    for number, item in enumerate(items):
        if (marker := item.get_closest_marker("surface")) and isinstance(item, pytest.Function):
            title: str = marker.args[0]
            subject: Any = item.callspec.params["subject"]
            item.extra_keyword_matches.add(title)
            column = f"torch.{subject.name}" if subject.is_of_pytorch else subject.name
            item.user_properties += [("row", f"{number:06} {title}"), ("column", column)]


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Judge a surface instead of calling its test once."""
    if not (marker := pyfuncitem.get_closest_marker("surface")):
        return None
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}
    judge(pyfuncitem.obj, arguments.pop("subject"), arguments, *marker.args)
    return True
