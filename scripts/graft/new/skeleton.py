"""``make new-op``: write the skeleton of a new operator into a native folder."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from ..base.base import Base, run_with_torchgen
from ..base.fetch import get_base
from ..base.installed import base_of, layout_of
from ..core.console import Steps, say
from ..core.errors import BuildError, CommandError, UsageError
from ..core.files import build_lock, files_below, lay_out_files, write_atomically
from ..core.layout import expanded
from ..deliver.editor import schema_line
from ..deliver.thin import package_name
from ..inputs.pin import pin_of
from ..options import Request
from .rendering import rendered, templates_in

KINDS = ("plain", "kernel", "pointwise", "composite")
VARIANTS = ("inplace", "out")
APPENDED = ("native_functions.yaml", "derivatives.yaml", "samples.py", "python/_decomp/decompositions.py")

_WITH_TODOS = frozenset({".cpp", ".h", ".cu", ".cuh", ".py", ".rst", ".yaml"})
# Said where values.NewOperator.backward is None.
_NO_BACKWARD = "KIND=kernel writes an operator for the backward for one result, without lists and `_` before the name"
# Code that follows a TODO message in C++ or Python.
_CODE_BEHIND = re.compile(r'"+\)?;?\s*$')


def new_op(request: Request) -> None:
    """Write the YAML entries, the kernel and the tests of an operator, and print what is left to do.

    The folder is created if it does not exist. If there is an error, nothing is written.
    """
    schema, kind, project = request.schema, request.kind, _project_files(request.project)
    layout = replace(request, native=(expanded(request.project) / "native",)).layout if project else request.layout
    wanted = ",".join(check_usage(schema, kind, request.variants))
    base = _base_of(request)
    done = run_with_torchgen(base.tree, "graft.new", base.tree, layout.native, schema, kind, wanted)
    if done.returncode != 0:
        raise CommandError("the skeleton could not be generated", cause=done.stdout.strip()[-4000:])
    answer = json.loads(done.stdout.splitlines()[-1])
    if "error" in answer:
        raise BuildError(**answer["error"])
    there = [Path(name) for name in answer if (layout.native / name).is_file()]
    before = set(todos(layout.native, there))
    refuse_existing([name for name in answer if name not in APPENDED], layout.native, base.include)
    write_all(layout.native, {name: appended(layout.native / name, text) for name, text in answer.items()})
    for file, text in project.items():
        write_atomically(file, text)
    left = [todo for todo in todos(layout.native, map(Path, answer)) if todo not in before]
    written = [f"  {'added to' if Path(name) in there else 'wrote   '}  {layout.native / name}" for name in answer]
    written += [f"  wrote     {file}" for file in project]
    if kind == "kernel" and "derivatives.yaml" in answer and "_backward(" not in answer["native_functions.yaml"]:
        written.append(f"{layout.native / 'derivatives.yaml'} has no gradient: {_NO_BACKWARD}")
    after = f"then: make test NATIVE={layout.native} OUT=<folder for the wheel>"
    if project:
        after = then(request.project)
    say("\n".join([*written, *listed(left), after]))


def then(project: str) -> str:
    """Return the next steps for a project. pip would take a path without a slash for the name of a package."""
    folder = project if os.sep in project.rstrip(os.sep) else f"./{project}"
    return (
        f"then: pip install --no-build-isolation -e {folder}, which builds for the installed torch; pytest {folder}\n"
        f"its wheel: python -m build --no-isolation {folder}; torch-graft is on no index, so an isolated build needs "
        "--find-links with the wheel of `make dist`"
    )


def _base_of(request: Request) -> Base:
    layout, environment = layout_of(request)
    if not environment:
        return get_base(pin_of(layout), layout, request.wheel, Steps())
    with build_lock(layout.base):
        return base_of(environment, layout.base)


def _project_files(folder: str) -> dict[Path, str]:
    """Return the files of a new project in ``folder``; none if no folder is given."""
    if not folder:
        return {}
    path = expanded(folder)
    package_name(path.name, path)
    if (path / "pyproject.toml").exists():
        todo = "choose another folder, or leave PROJECT out and set NATIVE to the project's native folder"
        raise UsageError(f"{path / 'pyproject.toml'}: the file already exists", todo=todo)
    values = {"name": path.name.replace("_", "-")}
    return {path / name: rendered(template, values) for name, template in templates_in("project").items()}


def check_usage(schema: str, kind: str, variants: str) -> list[str]:
    """Check that there is a schema, and that kind and variants are known. Return the variants without duplicates."""
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
    """Refuse files that exist in the native folder, and headers that the base's ``include`` has."""
    faults = [f"{native / name}: the file already exists" for name in names if (native / name).exists()]
    headers = [name for name in names if name.endswith(".h") and (include / "ATen/native" / name).is_file()]
    faults += [f"{native / name}: PyTorch has a header of this name, ATen/native/{name}" for name in headers]
    if faults:
        raise UsageError("\n".join(faults), todo="choose another name, or move the file away")


def appended(path: Path, text: str) -> str:
    """Return the content of a file with ``text`` appended. A YAML file must be a list that can be appended to."""
    before = path.read_text(encoding="utf-8").rstrip() if path.is_file() else ""
    if path.suffix == ".yaml" and not before:
        return f"{schema_line(path.name)}\n{text}"
    if path.suffix == ".py" or not before:
        return f"{before}\n\n\n{text}".lstrip()
    try:
        is_list = yaml.safe_load(f"{before}\n\n{text}") == [*(yaml.safe_load(before) or []), *yaml.safe_load(text)]
    except (yaml.YAMLError, TypeError):
        is_list = False
    if not is_list:
        raise BuildError(
            f"{path}:1: entries cannot be appended to this file",
            cause="it is not YAML, or not a list whose entries start in the first column",
            todo="start each entry with `- ` in the first column",
        )
    return f"{before}\n\n{text}"


def write_all(native: Path, texts: Mapping[str, str]) -> None:
    """Write files into a folder, by relative path; all of them or, if one cannot be written, none."""
    there = next(folder for folder in (native, *native.parents) if folder.is_dir())
    with TemporaryDirectory(prefix=".", dir=there) as written:
        lay_out_files(Path(written), {name: text.encode() for name, text in texts.items()})
        for name in texts:
            (native / name).parent.mkdir(parents=True, exist_ok=True)
        for name in texts:
            (Path(written) / name).replace(native / name)


def todos(native: Path, names: Iterable[Path] | None = None) -> list[str]:
    """Return the places marked TODO in files of a native folder, by default all, as ``file:line: text``."""
    return [
        f"{native / name}:{number}: {_CODE_BEHIND.sub('', line[line.index('TODO') :])}"
        for name in (files_below(native) if names is None else names)
        if name.suffix in _WITH_TODOS
        for number, line in enumerate((native / name).read_text(encoding="utf-8", errors="replace").splitlines(), 1)
        if "TODO" in line
    ]


def listed(found: Sequence[str]) -> list[str]:
    """Return lines with the number of places that ``todos`` found, and the lines of each file."""
    if not found:
        return []
    files: dict[str, list[str]] = {}
    for file, line in (re.findall(r"^(.+?):(\d+): ", todo)[0] for todo in found):
        files.setdefault(file, []).append(line)
    head = f"{len(found)} places say TODO:" if found[1:] else "1 place says TODO:"
    return [head, *(f"  {file}:{', '.join(lines)}" for file, lines in files.items())]
