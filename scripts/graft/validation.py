"""Check the values of options before a verb runs, and choose a pin if none is given."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

from .base.fetch import check_wheel, in_name_of
from .base.find import default_release, fetch_unpinned, find_pin, oldest_release
from .base.installed import Environment, find_environment, find_site
from .core.console import say
from .core.cuda_settings import NO_KERNELS, CudaArchs, CudaSettings
from .core.errors import GraftError, MissingError, UsageError, run_all
from .core.layout import PATCHES, Layout, TorchVersion, expanded
from .deliver.built import last_build
from .inputs.native import load_natives, require_native
from .inputs.pin import pin_of
from .options import (
    FOUND,
    GRAFT,
    INSTALLED,
    LAST,
    NONE,
    OLDEST,
    OPTIONS,
    RELEASE,
    SOURCE,
    THERE,
    Option,
    Request,
    Verb,
)

# The flags of check that are for BUILD=source alone, and those that are not for it.
_OF_KINDS = {"syntax": True, "if_possible": True, "cuda": False}


def complete(verb: Verb, request: Request, own: argparse.Namespace) -> Request:
    """Check a request, and return it with the pin that the verb uses. An error lists everything that is wrong. ``own``
    has the verb's own flags.
    """
    is_from_source = request.build == SOURCE and "build" in verb.takes.split()
    for flag, is_for_source in _OF_KINDS.items():
        if getattr(own, flag, False) and is_for_source != is_from_source:
            where, todo = ("for BUILD=source alone", "add") if is_for_source else ("not for BUILD=source", "leave out")
            raise UsageError(f"--{flag.replace('_', '-')} is {where}", todo=f"{todo} BUILD=source")
    if len(request.pins) > 1 and verb.pin != NONE and not verb.has_pins:
        raise UsageError(
            f"PIN={request.pin}: {verb.name} takes one version, not several",
            todo="set PIN to one of them; only thin-wheel and test-matrix take several",
        )
    if not getattr(own, "operator", True):  # `show` alone builds nothing
        return request
    if getattr(own, "cuda", False):
        verb = replace(verb, pin=RELEASE)
    elif verb.pin == THERE and is_from_source:
        verb = replace(verb, pin=OLDEST)
    if not request.pin:
        request = _with_default_pin(verb, request)
    _check(verb, request)
    is_listing = getattr(own, "list", False)
    if verb.pin not in (FOUND, THERE, LAST) or request.build != GRAFT or request.pin == INSTALLED or is_listing:
        return request
    if request.pin:
        # The hash of a wheel that is not pinned for this Python is an input of the build.
        for layout in _layouts(request):
            fetch_unpinned(layout, request.wheel)
        return request
    pin, cuda_archs = find_pin(request.cuda_archs, cxx=request.cxx)
    return replace(request, pin=pin, cuda_archs=cuda_archs)


def _with_default_pin(verb: Verb, request: Request) -> Request:
    """Add the default pin of a verb. It stays empty if the verb needs none, or if ``find_pin`` will ask pip for one."""
    if request.wheel:
        with suppress(GraftError):  # _check reports it
            return replace(request, pin=in_name_of(request.wheel)[0])
        return request
    if verb.pin == THERE and environment_of(request.python):
        return replace(request, pin=TorchVersion(INSTALLED))
    if verb.pin == LAST and request.native and (last := last_build(request.native, request.build)):
        pin, built = last
        say(f"torch {pin}: that of the last build")
        return replace(request, pin=pin, cuda_archs=request.cuda_archs or CudaSettings.noted(built.cuda_note).archs)
    if verb.pin in (RELEASE, OLDEST) or (verb.pin != NONE and request.build == SOURCE):
        release = oldest_release if verb.pin == OLDEST else default_release
        return replace(request, pin=release(PATCHES))
    return request


def _layouts(request: Request) -> list[Layout]:
    """Return the folders of the builds for each version that PIN names, but the installed one."""
    return [replace(request, pin=pin).layout for pin in request.pins if pin != INSTALLED]


def environment_of(python: str) -> Environment | None:
    """Return the environment of a Python; None if it has no torch that can be built on."""
    try:
        return find_environment(python)
    except GraftError:
        if python != OPTIONS["python"].default:
            find_site(python)
    return None


def _check(verb: Verb, request: Request) -> None:
    takes = verb.takes.split()
    checks: dict[str, Callable[[], object]] = {
        **{key: partial(_check_words, OPTIONS[key], [getattr(request, key)]) for key in ("build", "gaps")},
        "delivery": lambda: _check_words(OPTIONS["delivery"], request.delivery.split()),
        "native": lambda: _check_natives(verb, request),
        "out": lambda: _require_folder("OUT", request.out, "a folder; it is created if missing"),
        "pin": lambda: _check_pin(request) if verb.pin != NONE else None,
        "source": lambda: _check_source(request.source, is_checkout=verb.is_live(request)),
        "launcher": lambda: _check_launcher(request.launcher.strip()),
        "cuda_archs": lambda: _check_cuda_archs(request.cuda_archs),
    }
    run_all(*(check for option, check in checks.items() if option in takes))


def _check_natives(verb: Verb, request: Request) -> None:
    """Check the native folders. For `adopt` and `new`, check that the first is writable; for `new`, also ``SCHEMA``."""
    if verb.name == "import":
        return
    if verb.name == "adopt":
        _require_folder("NATIVE", request.native[0], "a new folder")
        return
    if verb.name != "new":
        if twice := [folder for folder, times in Counter(request.native).items() if times > 1]:
            raise UsageError(f"NATIVE has {twice[0]} twice", todo="name each folder once")
        load_natives(request.native)
        require_native(request.native)
        return
    from .new.skeleton import check_usage

    _require_folder("NATIVE", request.native[0], "a folder for the operator")
    check_usage(request.schema, request.kind, request.variants)


def _require_folder(variable: str, folder: Path | None, wanted: str) -> None:
    """Check that files can be written into ``folder``, or that it can be created."""
    if folder is None:
        return
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not there.is_dir():
        raise UsageError(f"{variable}={folder}: {there} is a file", todo=f"set {variable} to {wanted}")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(
            f"{variable}={folder}: {there} is not writable",
            todo=f"set {variable} to {wanted}, or change the permissions of {there}",
        )


def _check_pin(request: Request) -> None:
    """Check the pin and ``WHEEL``. Without a pin, only the name of ``WHEEL`` can be checked."""
    for pin in run_all(*(partial(pin_of, layout) for layout in _layouts(request))):
        if request.wheel:
            check_wheel(request.wheel, pin)
    if request.wheel and not request.pin:
        in_name_of(request.wheel)


def _check_source(source: str, *, is_checkout: bool) -> None:
    """Check that a local checkout or mirror exists. A remote one is checked when it is cloned."""
    if source and (is_checkout or ":" not in source) and not expanded(source).is_dir():
        raise UsageError(
            f"SOURCE={source}: no such folder",
            todo="set SOURCE to a checkout of PyTorch or an address to download from, or leave it out",
        )


def _check_words(option: Option, words: list[str]) -> None:
    if unknown := [word for word in words if word not in option.words] or ([] if words else [""]):
        raise UsageError(
            f"{option.word}={' '.join(words)}: no such {option.key}: {' or '.join(unknown)}",
            todo=f"set it to {option.holds}",
        )


def _check_cuda_archs(archs: CudaArchs) -> None:
    if archs.wrong:
        raise UsageError(
            f"CUDA_ARCHS={archs}: {', '.join(archs.wrong)} is not a GPU architecture",
            todo=f'write them as in CUDA_ARCHS="80 90a", or {NO_KERNELS} to build no CUDA kernels',
        )


def _check_launcher(wanted: str) -> None:
    try:
        words = shlex.split(wanted)
    except ValueError as error:
        raise UsageError(f"LAUNCHER={wanted}: {error}", todo="close the quotes") from error
    if words and not shutil.which(words[0]):
        raise MissingError(
            f"LAUNCHER={wanted}: program {words[0]} not found",
            todo="install it, or unset LAUNCHER",
        )
