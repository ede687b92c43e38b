"""``make new-op``: write the skeleton of a new operator into a native folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import yaml

from ..base.torchgen import run_with_torchgen
from ..base.tree import get_base
from ..core.console import Steps, say
from ..core.errors import CommandError, OperatorError, UsageError
from ..core.files import write_atomically
from ..inputs.pin import load_pin
from ..options import Request
from .todos import todos

KINDS = ("plain", "pointwise", "composite")
VARIANTS = ("inplace", "out")
APPENDED = ("native_functions.yaml", "derivatives.yaml", "samples.py", "python/_decomp/decompositions.py")


def new_op(request: Request) -> list[Path]:
    """Write the YAML entries, the kernel and the tests of an operator. Return the files.

    The folder is created if it does not exist.

    Raises:
        GraftError: nothing is written.
    """
    layout, schema, kind = request.layout, request.schema, request.kind
    wanted = ",".join(check_usage(schema, kind, request.variants))
    base = get_base(load_pin(layout.patches, layout.pin), layout, request.wheel, Steps())
    done = run_with_torchgen(base.tree, "graft.new", base.tree, layout.native, schema, kind, wanted)
    if done.returncode != 0:
        raise CommandError("the skeleton could not be generated", cause=done.stdout.strip()[-4000:])
    answer = json.loads(done.stdout.splitlines()[-1])
    if "error" in answer:
        raise OperatorError(**answer["error"])
    refuse_existing([name for name in answer if name not in APPENDED], layout.native, base.include)
    texts = {layout.native / name: appended(layout.native / name, text) for name, text in answer.items()}
    write_all(texts)
    left = todos(layout.native, map(Path, answer))
    written = [f"  {'added to' if name in APPENDED else 'new     '}  {layout.native / name}" for name in answer]
    then = f"then: make test NATIVE={layout.native} OUT=<folder for the wheel>"
    say("\n".join([*written, "left to do, each marked TODO:", *(f"  {todo}" for todo in left), then]))
    return list(texts)


def check_usage(schema: str, kind: str, variants: str) -> list[str]:
    """Return the requested variants without duplicates.

    Raises:
        UsageError: there is no schema, or the kind or a variant is unknown.
    """
    wanted = sorted({word.strip() for word in variants.split(",")} - {""})
    if not schema.strip():
        todo = 'set SCHEMA, for example SCHEMA="my_op(Tensor self, Tensor other) -> Tensor"'
        raise UsageError("there is no schema", todo=todo)
    if kind not in KINDS:
        raise UsageError(f"KIND={kind}: no such kind", todo=f"set KIND to one of: {', '.join(KINDS)}")
    if unknown := ", ".join(word for word in wanted if word not in VARIANTS):
        todo = f"set VARIANTS to some of: {','.join(VARIANTS)}"
        raise UsageError(f"VARIANTS={variants}: no such variant: {unknown}", todo=todo)
    return wanted


def refuse_existing(names: Sequence[str], native: Path, include: Path) -> None:
    """Check that no file exists in the native folder, and no header in the base's ``include``.

    Raises:
        UsageError: lists each that does.
    """
    faults = [f"{native / name}: the file already exists" for name in names if (native / name).exists()]
    headers = [name for name in names if name.endswith(".h") and (include / "ATen/native" / name).is_file()]
    faults += [f"{native / name}: PyTorch has a header of this name, ATen/native/{name}" for name in headers]
    if faults:
        raise UsageError("\n".join(faults), todo="choose another name, or move the file away")


def appended(path: Path, text: str) -> str:
    """Return the content of a file with ``text`` behind it.

    Raises:
        OperatorError: it is no YAML list that entries can be appended to.
    """
    before = path.read_text(encoding="utf-8").rstrip() if path.is_file() else ""
    if path.suffix == ".py" or not before:
        return f"{before}\n\n\n{text}".lstrip()
    try:
        is_list = yaml.safe_load(f"{before}\n\n{text}") == [*(yaml.safe_load(before) or []), *yaml.safe_load(text)]
    except (yaml.YAMLError, TypeError):
        is_list = False
    if not is_list:
        raise OperatorError(
            f"{path}:1: entries cannot be appended to this file",
            cause="it is not YAML, or not a list whose entries start in the first column",
            todo="start each entry with `- ` in the first column",
        )
    return f"{before}\n\n{text}"


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
