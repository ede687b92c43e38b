"""Helpers for the tests of several folders; they do not need torch."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar
from zipfile import ZipFile

import pytest
import yaml
from graft.core.layout import PACKAGES, store

# Types of pytest's fixtures.
Patch = pytest.MonkeyPatch
Capture = pytest.CaptureFixture[str]

Refusal = TypeVar("Refusal", bound=BaseException)

# What builds derive from a base, by its content: parsed operators and symbol tables. And what they compile.
DERIVED = ("operators", "symbols")
OBJECTS = "objects"


def write(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """Write files, by path in ``folder``. Return the folder."""
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder


def refused(
    kind: type[Refusal], act: Callable[..., object], *given: Any, match: str | None = None, **named: Any
) -> Refusal:
    """Return the error with which a call ends."""
    with pytest.raises(kind, match=match) as caught:
        act(*given, **named)
    return caught.value


def kernel(name: str, arguments: str, body: str) -> str:
    """Return a source with the kernel of an operator, whose body is in line 8."""
    return f"""#define TORCH_ASSERT_ONLY_METHOD_OPERATORS
#include <ATen/core/Tensor.h>
#include <ATen/ops/{name}_native.h>

namespace at::native {{

Tensor {name}({arguments}) {{
  {body}
}}

}} // namespace at::native
"""


def share_builds(build: Path, cache: Path, base: Path, names: Collection[str] = ("base", *DERIVED, OBJECTS)) -> None:
    """Let builds in the folder ``build``, whose store is ``cache``, use what this repository's have: ``base``,
    ``DERIVED`` and ``OBJECTS``.
    """
    if "base" in names:
        _share(build / base.parents[1].name / base.parent.name / "base", base)
    share_store(cache, [name for name in names if name != "base"])


def share_store(cache: Path, names: Collection[str]) -> None:
    """Let builds whose store is ``cache`` use what this repository's store has."""
    for name in names:
        _share(cache / name, store() / name)


def _share(ours: Path, theirs: Path) -> None:
    theirs.mkdir(parents=True, exist_ok=True)
    ours.parent.mkdir(parents=True, exist_ok=True)
    ours.symlink_to(theirs)


def use_own_bases(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Let Graft share base wheels in ``folder``, not with the user. pip keeps its cache."""
    caches = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    patch.setenv("PIP_CACHE_DIR", os.environ.get("PIP_CACHE_DIR") or f"{caches}/pip")
    patch.setenv("XDG_CACHE_HOME", str(folder))
    patch.delenv("GRAFT_HOME", raising=False)


def git(tree: Path, *words: str | Path, **variables: str) -> str:
    """Return git's output in ``tree``, with permission to fetch from a folder."""
    who = ["-c", "user.name=Someone", "-c", "user.email=someone@example.com", "-c", "protocol.file.allow=always"]
    command, env = ["git", *who, *words], {**os.environ, **variables}
    return subprocess.check_output(command, cwd=tree, env=env, stdin=subprocess.DEVNULL, text=True).strip()


def interruptible() -> None:
    """For ``preexec_fn`` of a process that is sent SIGINT: shells make background jobs ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@functools.cache
def processor_flags() -> frozenset[str]:
    """Return the features of this processor, by their names in Linux."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return frozenset(next(line for line in lines if line.startswith(("flags", "Features"))).split())


def require_capability(capability: str) -> None:
    """Skip the test if the processor does not support ATen's CPU capability."""
    needed = {"AVX2": "avx2", "AVX512": "avx512f"}.get(capability.upper())
    if needed and needed not in processor_flags():
        pytest.skip(f"this processor has no {capability.upper()}")


def alter_build_id(path: Path) -> None:
    """Change one byte of a library's build-id, in a copy of the file: it may be linked elsewhere."""
    content = bytearray(path.read_bytes())
    place = content.index(b"GNU\0", content.index(b"\x04\0\0\0\x14\0\0\0\x03\0\0\0GNU\0")) + 4
    content[place] ^= 0xFF
    path.unlink()
    path.write_bytes(content)


def architectures(library: Path) -> set[str]:
    """Return the GPU architectures that a library has machine code or PTX for, with NVIDIA's cuobjdump from pip."""
    places = [Path(path) / "nvidia" for path in sys.path]
    program = next(found for place in places for found in place.glob("*/bin/cuobjdump"))
    listed = subprocess.run(
        [program, "--list-elf", "--list-ptx", library], stdout=subprocess.PIPE, text=True, check=True
    )
    return set(re.findall(r"\.(sm_\w+)\.(?:cubin|ptx)$", listed.stdout, re.M))


def make_shared(folder: Path, name: str, text: str, *needed: str) -> Path:
    """Compile ``libNAME.so.1``, and its link ``libNAME.so``, in a folder from C. It needs others of the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"lib{name}.so.1"
    command = ["g++", "-shared", "-fPIC", "-x", "c", "-", "-x", "none", "-o", target, f"-Wl,-soname,{target.name}"]
    links = [f"-l{each}" for each in needed]
    subprocess.run([*command, f"-L{folder}", *links], input=text, text=True, check=True)
    (folder / f"lib{name}.so").symlink_to(target.name)
    return target


def make_archive(folder: Path, name: str, text: str) -> Path:
    """Compile the static library ``libNAME.a`` in a folder from C."""
    target = folder / f"lib{name}.a"
    command = ["g++", "-fPIC", "-x", "c", "-c", "-", "-o", target.with_suffix(".o")]
    subprocess.run(command, input=text, text=True, check=True)
    subprocess.run(["ar", "rcs", target, target.with_suffix(".o")], check=True)
    return target


def of_the_base_wheel(variable: str) -> Path:
    """Return the path in ``variable``, or skip the test if it is not set."""
    if variable not in os.environ:
        pytest.skip("needs the official wheel that a graft is made from, and a source build has none")
    return Path(os.environ[variable]).resolve()


def program(path: Path, body: str) -> Path:
    """Write a shell script that can be run."""
    write(path.parent, {path.name: f"#!/bin/sh\n{body}\n"})
    path.chmod(0o755)
    return path


def make_wheel(path: Path, members: Mapping[Any, str | bytes]) -> Path:
    """Write a wheel, or another archive, with these members, by name or ``ZipInfo``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def make_installable(path: Path, members: Mapping[Any, str | bytes]) -> Path:
    """Write a wheel that pip installs, also without metadata among ``members``."""
    name, version, tag = path.stem.split("-", 2)
    info = f"{name}-{version}.dist-info"
    own = {
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n",
        f"{info}/RECORD": "",
    }
    return make_wheel(path, {**own, **members})


def started(code: str, *arguments: str | Path) -> subprocess.Popen[str]:
    """Start Python with code that can import the builder."""
    command, env = [sys.executable, "-c", code, *map(str, arguments)], {**os.environ, "PYTHONPATH": str(PACKAGES)}
    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def compiled(text: str, target: Path, *flags: str | Path, compiler: str = "g++") -> Path:
    """Compile a text in C++ to position-independent code: what it becomes, the flags say."""
    target.parent.mkdir(parents=True, exist_ok=True)
    command = [compiler, "-O1", "-fPIC", *flags, "-xc++", "-", "-xnone", "-o", target]
    subprocess.run(command, input=text, text=True, check=True, cwd=target.parent)
    return target


def files_of(folder: Path) -> list[str]:
    """Return the paths of all files in a folder, in order."""
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def beside(test: str) -> Any:
    """Return what the YAML file beside a test file has: longer texts of that test."""
    return yaml.safe_load(Path(test).with_suffix(".yaml").read_text(encoding="utf-8"))
