"""What each delivery holds, file by file, as recorded before the builder is rebuilt. This file goes with that work.

``GRAFT_RECORD=1 make test ARGS="--parts deliveries -- -k golden"`` records it anew, after a change of what is built.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from zipfile import ZipFile

import pytest
from graft.core.layout import REPOSITORY
from snippets import write_shown_folder
from users import Environment, make

RECORDED = Path(__file__).with_name("golden.json")
FOLDERS = {"native": "native", "grammar": "tests/wheel/grammar", "readme": ""}

# What depends on the hash of the version or on the repository's folder, and the note of torch._graft.
_HASH = re.compile(rb"graft\.[0-9a-f]{10}")
_LEFT_OUT = re.compile(r"(/RECORD|_torch_graft_start.py|_graft\.json|/note\.json|^graft\.json|\.pyc)$")


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if place := FOLDERS[request.param]:
        return REPOSITORY / place
    shown = tmp_path_factory.mktemp("readme") / "my_ops"
    write_shown_folder(shown)
    return shown


def surroundings(base_wheel: Path) -> str:
    """What the bytes depend on besides the builder and the folders."""
    compiler = subprocess.run(["g++", "--version"], capture_output=True, text=True, check=True).stdout
    return f"{base_wheel.name}, Python {platform.python_version()}, {compiler.splitlines()[0]}"


def recorded(base_wheel: Path) -> dict[str, dict[str, str]]:
    known = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.is_file() else {}
    return known.get(surroundings(base_wheel), {})


def in_wheel(wheel: Path) -> Iterator[tuple[str, bytes]]:
    with ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.endswith("/"):
                yield name, archive.read(name)


def in_tree(tree: Path) -> Iterator[tuple[str, bytes]]:
    for path in sorted(tree.rglob("*")):
        if path.is_file() and not path.is_symlink() and path.stat().st_nlink == 1:
            yield path.relative_to(tree).as_posix(), path.read_bytes()


def delivered(delivery: str, folder: Path, environment: Environment, out: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a delivery."""
    if delivery == "develop":
        make("develop", environment, "--native", folder)
        tree = Path(environment.run("import torch; print(torch.__file__)").stdout.strip()).parents[1]
        yield from in_tree(tree)
        return
    verb, more = ("build", ()) if delivery == "wheel" else ("thin-wheel", ("--name", "golden", "--version", "1"))
    command = [sys.executable, "-m", "graft", verb, "--native", folder, "--out", out, *more]
    command += ["--pin", Path(os.environ["GRAFT_BASE"]).parents[1].name]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = out.glob("*.whl")
    yield from in_wheel(wheel)


@pytest.mark.parametrize("delivery", ["wheel", "develop", "thin"])
@pytest.mark.parametrize("folder", FOLDERS, indirect=True)
def test_golden(
    delivery: str,
    folder: Path,
    request: pytest.FixtureRequest,
    stock: Environment,
    base_wheel: Path,
    tmp_path: Path,
) -> None:
    with ZipFile(base_wheel) as archive:
        stock_files = {info.filename: info.CRC for info in archive.infolist()}
        own = {
            _HASH.sub(b"graft.0", name.encode()).decode(): hashlib.sha256(_HASH.sub(b"graft.0", text)).hexdigest()[:16]
            for name, text in delivered(delivery, folder, stock, tmp_path)
            if not _LEFT_OUT.search(name) and not (name in stock_files and archive.read(name) == text)
        }
    name = f"{request.node.callspec.params['folder']} as {delivery}"
    if os.environ.get("GRAFT_RECORD"):
        every = json.loads(RECORDED.read_text(encoding="utf-8")) if RECORDED.is_file() else {}
        every.setdefault(surroundings(base_wheel), {})[name] = own
        RECORDED.write_text(json.dumps(every, indent=0, sort_keys=True) + "\n", encoding="utf-8")
        return
    known = recorded(base_wheel).get(name)
    if known is None:
        pytest.skip("these bytes were recorded with another compiler, Python or torch")
    differing = {each for each in known.keys() | own.keys() if known.get(each) != own.get(each)}
    assert not differing
