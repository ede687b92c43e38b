"""``make new-op``: write the skeleton of a new operator into a native folder."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import yaml

from ..base.base import Base
from ..base.torchgen import run_with_torchgen
from ..base.tree import get_base
from ..core.console import Steps, say
from ..core.errors import CommandError, OperatorError, UsageError
from ..core.files import write_atomically
from ..core.layout import Layout
from ..inputs.pin import load_pin
from .todos import todos

KINDS = ("plain", "pointwise", "composite")
VARIANTS = ("inplace", "out")


def new_op(layout: Layout, *, base_wheel: Path | None, schema: str, kind: str, variants: str) -> list[Path]:
    """Write the YAML entries, the kernel and the tests of an operator. Return the files.

    Args:
        layout: the pin, and the native folder, which is created if it does not exist.
        base_wheel: path of the base wheel; None to download it with pip.
        schema: the schema of the functional variant, as in native_functions.yaml.
        kind: one of ``KINDS``.
        variants: some of ``VARIANTS``, separated by commas.

    Raises:
        GraftError: nothing is written.
    """
    wanted = check_usage(schema, kind, variants)
    base = get_base(load_pin(layout.patches, layout.pin), layout, base_wheel, Steps())
    made = _scaffold(base, layout.native, schema, kind, wanted)
    texts = {layout.native / name: text for name, text in made["created"].items()}
    refuse_existing(texts, layout.native, base)
    for name, text in made["appended"].items():
        behind = appended if Path(name).suffix == ".yaml" else appended_python
        texts[layout.native / name] = behind(layout.native / name, text)
    write_all(texts)
    report(layout.native, made)
    return list(texts)


def check_usage(schema: str, kind: str, variants: str) -> list[str]:
    """Return the requested variants without duplicates.

    Raises:
        UsageError: there is no schema, or the kind or a variant is unknown.
    """
    if not schema.strip():
        raise UsageError(
            "there is no schema", todo='set SCHEMA, for example SCHEMA="my_op(Tensor self, Tensor other) -> Tensor"'
        )
    if kind not in KINDS:
        raise UsageError(f"KIND={kind}: no such kind", todo=f"set KIND to one of: {', '.join(KINDS)}")
    wanted = sorted({word.strip() for word in variants.split(",")} - {""})
    unknown = [word for word in wanted if word not in VARIANTS]
    if unknown:
        raise UsageError(
            f"VARIANTS={variants}: no such variant: {', '.join(unknown)}",
            todo=f"set VARIANTS to some of: {','.join(VARIANTS)}",
        )
    return wanted


def _scaffold(base: Base, native: Path, schema: str, kind: str, variants: list[str]) -> dict[str, dict[str, str]]:
    """Get the texts from a process that imports the base's torchgen.

    Raises:
        OperatorError: that process reported it.
        CommandError: it failed in another way.
    """
    # As one argument, so that a schema may begin with a dash.
    wanted = [f"--schema={schema}", f"--kind={kind}", f"--variants={','.join(variants)}"]
    done = run_with_torchgen(base.tree, "graft.new", "--base", base.tree, "--native", native, *wanted)
    if done.returncode not in (0, OperatorError.exit_code):
        raise CommandError("the skeleton could not be generated", cause=done.stdout.strip()[-4000:])
    answer = json.loads(done.stdout.splitlines()[-1])
    if done.returncode != 0:
        raise OperatorError(answer["what"], cause=answer["cause"], todo=answer["todo"])
    texts: dict[str, dict[str, str]] = answer
    return texts


def refuse_existing(texts: Mapping[Path, str], native: Path, base: Base) -> None:
    """Check that none of the new files exists in the folder, or as a header of PyTorch's.

    Raises:
        UsageError: lists each that does.
    """
    faults = [f"{path}: the file already exists" for path in texts if path.exists()]
    for path in texts:
        name = f"ATen/native/{path.relative_to(native).as_posix()}"
        if path.suffix == ".h" and (base.include / name).is_file():
            faults.append(f"{path}: PyTorch has a header of this name, {name}")
    if faults:
        raise UsageError("\n".join(faults), todo="choose another name, or move the file away")


def appended(path: Path, entries: str) -> str:
    """Return the text of a YAML list with ``entries`` appended.

    Raises:
        OperatorError: it is not a list that entries can be appended to.
    """
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    if text:
        text = f"{text.rstrip()}\n\n"
    try:
        before, after = yaml.safe_load(text) or [], yaml.safe_load(f"{text}{entries}")
    except yaml.YAMLError:
        before, after = None, []
    if not isinstance(before, list) or after != [*before, *yaml.safe_load(entries)]:
        raise OperatorError(
            f"{path}:1: entries cannot be appended to this file",
            cause="it is not YAML, or not a list whose entries start in the first column",
            todo="start each entry with `- ` in the first column",
        )
    return f"{text}{entries}"


def appended_python(path: Path, text: str) -> str:
    """Return the text of a Python file with ``text`` appended."""
    before = path.read_text(encoding="utf-8").rstrip() if path.is_file() else ""
    return f"{before}\n\n\n{text}" if before else text


def write_all(texts: Mapping[Path, str]) -> None:
    """Write every file, or change nothing."""
    before = {path: path.read_bytes() if path.is_file() else None for path in texts}
    missing = sorted({folder for path in texts for folder in path.parents if not folder.exists()}, reverse=True)
    try:
        for path, text in texts.items():
            write_atomically(path, text)
    except BaseException:
        for path, content in before.items():
            if content is not None:
                write_atomically(path, content)
            elif path.is_file():
                path.unlink()
        for folder in missing:
            if folder.is_dir():
                folder.rmdir()
        raise


def report(native: Path, made: Mapping[str, Mapping[str, str]]) -> None:
    """Print what was written, and what remains to be done."""
    lines = [f"  added to  {native / name}" for name in made["appended"]]
    lines += [f"  new       {native / name}" for name in made["created"]]
    left = todos(native, [Path(name) for name in (*made["created"], *made["appended"])])
    lines += ["left to do, each marked TODO:", *(f"  {todo}" for todo in left)]
    lines += [f"then: make test NATIVE={native} OUT=<folder for the wheel>"]
    say("\n".join(lines))
