"""The verbs that build (a wheel, a develop tree, a thin wheel) and those that check a native folder."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from .base.base import Base
from .base.find import expected_pin, fetch_unpinned, for_this_machine
from .base.installed import Environment, find_environment, find_site, layout_of, layout_on
from .check.formats import reported
from .checkout.live import Live, RefusedOperatorsError
from .core.bugs import expected
from .core.console import Steps, say
from .core.errors import Finding, GraftError, UsageError
from .core.files import build_lock
from .core.layout import DEBUG, DEVELOP, Layout, TorchVersion, expanded
from .deliver.delivered import Delivered, announce
from .deliver.editor import for_editors
from .deliveries import Thin, Tree, Wheel, job_of, run
from .inputs.accepted import tell
from .inputs.native import load_native
from .inputs.pin import pin_of
from .inputs.pyproject import read_toml
from .inputs.settings import settings_of
from .inputs.snapshot import take_snapshot
from .inputs.watch import States, states, wait_for_save
from .options import SOURCE, Request


def build(request: Request) -> Delivered:
    """Build the wheel of torch with the operators."""
    if request.build == SOURCE:
        from .fork.source_build import build_source

        return build_source(request)
    live = of_checkout(request)
    live.require_something()
    delivered = run(Wheel(live.request.layout), live.request)
    live.finish()
    return delivered


def of_checkout(request: Request, site: Path | None = None, *, is_whole: bool = True) -> Live:
    """Return the request. If SOURCE is a checkout, add a native folder with its changes; not for a source build, which
    takes PyTorch's sources from SOURCE.

    Args:
        request: the request.
        site: the folder with the torch to build on; None for the wheel of the pin.
        is_whole: whether the delivery can replace whole Python files of torch.
    """
    if not request.source or request.build == SOURCE:
        return Live(request)
    from .base.fetch import get_base
    from .checkout.read import read_checkout

    site = site or get_base(pin_of(request.layout), request.layout, request.wheel, Steps()).tree
    return read_checkout(request, site, is_whole=is_whole)


def develop(request: Request, own: argparse.Namespace) -> Delivered:
    """Add the operators to the torch that is installed in an environment; with ``watch`` after every save."""
    from .compile.idle import doing, postponing

    seen: States | None = None
    later: list[Callable[[], object]] = []
    while request.watch:
        with doing(later):
            seen = _wait(request, seen)
        try:
            with postponing() as later:
                _develop(request, own)
            say("ready; waiting for the next save (Ctrl-C to end)")
        except Exception as error:
            what = "the rest is built" if isinstance(error, RefusedOperatorsError) else "torch is unchanged"
            say(f"error: {expected(error)}\nwaiting for the next save; {what} (Ctrl-C to end)")
    return _develop(request, own)


def _develop(request: Request, own: argparse.Namespace) -> Delivered:
    environment = find_environment(request.python)
    if not os.access(environment.packages, os.W_OK):
        raise UsageError(
            f"{environment.packages}: this folder cannot be written to, and develop writes into it",
            todo="set PYTHON to the Python of an environment of your own (`python3 -m venv`), or use `make thin-wheel`",
        )
    live = of_checkout(request, environment.site)
    if live.is_empty:
        undevelop(request)
        live.finish()
        return Delivered(environment.site / "torch")
    layout = replace(layout_on(live.request.layout, environment), kind=DEBUG if request.debug else DEVELOP)
    layout = replace(layout, cuda=for_this_machine(layout.cuda, Base(environment.site / "torch", environment.site)))
    with for_editors(layout, is_linked=own.editor, is_quiet=request.watch):
        delivered = run(Tree(layout, environment), live.request)
        live.say_tests()
    live.finish()
    return delivered


def _wait(request: Request, seen: States | None) -> States:
    """Wait for a save in the native folders or the checkout. Return their state, for the next call."""
    return wait_for_save(lambda: _states(request), seen or {})


def _states(request: Request) -> States:
    found = states(request.native)
    if request.source:
        from .checkout.read import state_of

        found[expanded(request.source)] = state_of(request.source)
    return found


def undevelop(request: Request) -> None:
    """Restore the environment's original torch."""
    from .deliver.develop import remove_trees

    packages, site = find_site(request.python)
    torch = f"{site}/torch is the installed one again" if site else f"{packages} no longer has torch"
    say(torch if remove_trees(packages) else f"nothing to do: make develop has not added anything to {packages}")


def thin_wheel(request: Request) -> Delivered:
    """Build the operators as a separate wheel: for the torch of an environment, or of one pin or several."""
    from .compose.several import platform_of
    from .deliver.thin import package_name, requirement, thin_version, write_wheel

    start = time.perf_counter()
    first = request.native[0] if request.native else expanded(request.source)
    package = package_name(request.name, first)
    thin_version(request.version, request.pins)
    lives: list[Live] = []
    files, deliveries = thin_files(request, package, request.pins, lives=lives)
    built = [delivery.layout.pin for delivery in deliveries]
    project = {
        "name": package,
        "version": thin_version(request.version, built),
        "description": f"Operators for PyTorch {', '.join(built)}",
    }
    wheel = write_wheel(
        None,
        {"project": project},
        files,
        package=package,
        requires=[requirement(built), *dependencies_of(request.native)],
        platform=platform_of(package, files),
        out=request.layout.out,
    )
    announce(wheel, seconds := time.perf_counter() - start)
    for live in lives:
        live.finish()
    return Delivered(wheel, {"build": seconds})


def dependencies_of(natives: Sequence[Path]) -> list[str]:
    """Return the dependencies in the folders' pyproject.toml files; an adopted folder depends on the extension."""
    files = dict.fromkeys(file for native in natives if (file := settings_of(native).file))
    projects = [read_toml(file).get("project", {}) for file in files]
    return list(dict.fromkeys(each for project in projects for each in project.get("dependencies", [])))


def thin_files(
    request: Request,
    package: str,
    versions: Sequence[TorchVersion],
    kind: str = "",
    lives: list[Live] | None = None,
    form: type[Thin] = Thin,
) -> tuple[dict[str, bytes], list[Thin]]:
    """Build a package for ``versions`` of torch; ``INSTALLED`` is the torch of ``request.python``. Return its files,
    and the delivery for each version. The ``Live`` of each version is appended to ``lives``.
    """
    from .compose.several import read_together

    deliveries = []
    for version in versions:
        layout, environment = layout_of(replace(request, pin=version))
        if not environment:
            fetch_unpinned(layout, request.wheel)
        live = of_checkout(replace(request, pin=version), environment.site if environment else None, is_whole=False)
        live.require_something()
        (lives if lives is not None else []).append(live)
        layout = replace(layout, kind=kind, natives=live.request.native)
        deliveries.append(form(layout, environment, package))
    folders = []
    for delivery in deliveries:
        try:
            folders.append(run(delivery, replace(request, native=delivery.layout.natives)).path)
        except GraftError as error:
            if len(deliveries) > 1:
                error.what = f"for torch {delivery.layout.pin}:\n{error.what}"
            raise
    return read_together(package, folders), deliveries


def check(request: Request, own: argparse.Namespace) -> None:
    """Find errors in the native folders, the pin and its patches without building anything. With ``--list``, first list
    the files that builds read. If the pin is invalid, the rest is not checked. With ``--cuda``, compile the CUDA
    sources, and link nothing; with BUILD=source, compile in PyTorch's source tree. With ``--format``, print the
    findings for another program, too.
    """
    with reported(own.format) as warnings:
        _check(request, own, warnings)


def _check(request: Request, own: argparse.Namespace, warnings: set[Finding]) -> None:
    if request.build == SOURCE:
        from .fork.source_build import check as check_in_source

        check_in_source(request, is_syntax=own.syntax, is_optional=own.if_possible)
        return
    layout, environment = layout_of(request)
    live = of_checkout(request, environment.site if environment else None)
    layout = replace(layout, natives=live.request.native)
    for folder in layout.natives if own.are_files_listed else ():
        say("\n".join(map(str, load_native(folder).inputs)))
    with for_editors(layout, is_linked=own.editor):
        said = _checked(layout, environment, live.request, own, warnings)
    say(said)
    live.finish()


def _checked(
    layout: Layout, environment: Environment | None, request: Request, own: argparse.Namespace, warnings: set[Finding]
) -> str:
    """Return the message of a check without errors, and add its warnings."""
    from .stages import check, make_for_cuda

    snapshot = take_snapshot(layout)
    tell(snapshot.read.folders, stays=True)
    with build_lock(layout.work):
        job = job_of(layout, snapshot, request, environment)
        if own.cuda:
            targets = ", ".join(f"sm_{name}" for name in make_for_cuda(job).architectures)
            return f"{layout.title}: its CUDA sources compile for {targets} with PyTorch {snapshot.pin.version.release}"
        warnings |= check(job)
        return verdict(layout, environment)


def verdict(layout: Layout, environment: Environment | None) -> str:
    """Return the message of a `check` without findings: the torch, and how to check for the torch of a wheel."""
    said = f"{layout.title}: no errors found for torch {layout.pin}"
    if not environment:
        return said
    said += f", which {environment.python} has"
    wheel = expected_pin(layout.cxx)
    if wheel in ("", layout.pin):
        return said
    return f"{said}; a wheel is built for torch {wheel}, for which `make check PIN={wheel}` checks"
