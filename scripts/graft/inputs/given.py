"""Check the user's options and variables before anything is done."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
from pathlib import Path

from ..core.errors import ToolchainError, UsageError, run_all
from ..core.layout import Layout, expanded, native_folders
from .cuda_toolkit import wanted_architectures
from .native import FUNCTIONS, load_native
from .pin import load_pin

# Verbs that write into OUT.
_WRITING = frozenset({"build", "thin-wheel", "wheels", "test", "bench", "surfaces", "export"})
# Verbs that use the torch of an environment, or several pins.
_WITHOUT_A_PIN = frozenset({"develop", "undevelop", "wheels", "pin"})
# What tests and the table of surfaces can run on.
_DELIVERIES = ("wheel", "develop", "thin-wheel")
# The value of PIN for thin wheels for the torch that PYTHON has installed.
INSTALLED = "installed"


def check_given(options: argparse.Namespace) -> None:
    """Check all options and variables of a verb.

    Raises:
        GraftError: lists everything that is wrong.
    """
    if not hasattr(options, "native"):
        return
    run_all(
        lambda: _check_natives(options),
        lambda: _check_out(options),
        lambda: _check_pin_and_wheel(options),
        lambda: _check_source(options),
        lambda: _check_build(options),
        lambda: _check_deliveries(options),
        _check_launcher,
        wanted_architectures,
    )


def check_before_download(options: argparse.Namespace) -> None:
    """Check what a build would find out after its base is there.

    Raises:
        GraftError: see ``load_native``, and ``check_usage`` of `make new-op`.
    """
    if options.verb == "new-op":
        from ..new.new_op import check_usage

        check_usage(options.schema, options.kind, options.variants)
        return
    for folder in native_folders(options.native):
        load_native(folder)


def _check_natives(options: argparse.Namespace) -> None:
    if options.verb == "undevelop":
        return
    folders = native_folders(options.native)
    if options.verb == "new-op":
        # It is created if it does not exist.
        _require_folder("NATIVE", folders[0], "a folder for the operator")
        return
    for folder in folders:
        if not folder.is_dir():
            what = "this is a file" if folder.exists() else "no such folder"
            raise UsageError(f"{folder}: {what}", todo=f"set NATIVE to a folder that contains {FUNCTIONS}")


def _check_out(options: argparse.Namespace) -> None:
    if options.verb in _WRITING and options.out:
        _require_folder("OUT", expanded(options.out), "a folder; it is created if it does not exist")


def _require_folder(variable: str, folder: Path, wanted: str) -> None:
    """Check that files can be written into ``folder``, or that it can be created."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not there.is_dir():
        raise UsageError(f"{variable}={folder}: {there} is a file", todo=f"set {variable} to {wanted}")
    if not os.access(there, os.W_OK | os.X_OK):
        raise UsageError(
            f"{variable}={folder}: {there} is not writable",
            todo=f"set {variable} to {wanted}, or change the permissions of {there}",
        )


def _check_pin_and_wheel(options: argparse.Namespace) -> None:
    """Check the pin and ``WHEEL``. If there is no pin yet, ``WHEEL`` names it, or it is found."""
    if options.verb in _WITHOUT_A_PIN or options.pin == INSTALLED:
        return
    if not options.pin:
        if options.wheel:
            from ..base.fetch import in_name_of

            in_name_of(options.wheel)
        return
    layout = Layout(options.pin, (), Path())
    pin = load_pin(layout.patches, layout.pin)
    if options.wheel:
        from ..base.fetch import check_wheel

        check_wheel(options.wheel, pin)


def _check_source(options: argparse.Namespace) -> None:
    """Check that a local checkout or mirror exists. A remote one is checked when it is cloned."""
    source = getattr(options, "source", None)
    if source and ":" not in source and not expanded(source).is_dir():
        raise UsageError(
            f"SOURCE={source}: no such folder",
            todo="set SOURCE to a checkout of PyTorch or an address to download from, or leave it out",
        )


def _check_build(options: argparse.Namespace) -> None:
    if getattr(options, "build", "graft") not in ("graft", "source"):
        raise UsageError(f"BUILD={options.build}: no such build", todo="set it to graft or source")


def _check_deliveries(options: argparse.Namespace) -> None:
    """Check the deliveries: one for tests, several for the table of surfaces. `make wheels` checks its own."""
    if options.verb not in ("test", "surfaces"):
        return
    words = options.delivery.split() if options.verb == "surfaces" else [options.delivery]
    if unknown := [word for word in words if word not in _DELIVERIES]:
        raise UsageError(
            f"DELIVERY={options.delivery}: no such delivery: {' or '.join(unknown)}",
            todo=f"set it to {' or '.join(_DELIVERIES)}",
        )


def _check_launcher() -> None:
    wanted = os.environ.get("LAUNCHER", "").strip()
    try:
        words = shlex.split(wanted)
    except ValueError as error:
        raise UsageError(f"LAUNCHER={wanted}: {error}", todo="close the quotes") from error
    if words and wanted != "none" and not shutil.which(words[0]):
        raise ToolchainError(
            f"LAUNCHER={wanted}: program {words[0]} not found",
            todo="install it, or set LAUNCHER to another program, or to none",
        )
