"""What users have and do: an environment with torch, and a folder of operators."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from graft.core.layout import PACKAGES, REPOSITORY
from helpers import compiled, write
from snippets import shown_operator

from tests.kit.environments import copy_environment

# The README's operator. Tests that edit it do so in the same way: each state is compiled once for all of them.
CLIP = shown_operator()
CLIP_EDITED = CLIP["SoftClip.cpp"].replace(".tanh()", ".tanh().add(1)")

# Shows which of the two kernels there is.
CLIPPED = "torch.soft_clip(torch.tensor([0., 50.])).tolist()"
AS_WRITTEN, AS_EDITED = "[0.0, 1.0]", "[1.0, 2.0]"

# The same with an operator that has two results, and one that writes an argument.
CLIPS = {
    **CLIP,
    "native_functions.yaml": CLIP["native_functions.yaml"]
    + """
- func: clip_apart(Tensor self, Scalar limit) -> (Tensor below, Tensor above)
  dispatch:
    CompositeExplicitAutograd: clip_apart

- func: clip_into(Tensor x, Tensor(a!) out) -> ()
  dispatch:
    CPU: clip_into
""",
    "ClipApart.cpp": """#include <ATen/ops/clip_apart_native.h>
#include <ATen/ops/clip_into_native.h>

namespace at::native {

std::tuple<Tensor, Tensor> clip_apart(const Tensor& self, const Scalar& limit) {
  return {self.clamp_max(limit), self.clamp_min(limit)};
}

void clip_into(const Tensor& x, Tensor& out) {
  out.copy_(x.clamp_max(1));
}

} // namespace at::native
""",
}


def write_clip(folder: Path) -> Path:
    """Write a native folder with the README's operator ``soft_clip``."""
    return write(folder, CLIP)


class Environment:
    """A virtual environment with torch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin/python"
        (self.packages,) = folder.glob("lib/python*/site-packages")
        # Bytecode goes elsewhere: the tests compare what is in the folder.
        self._bytecode = str(folder.with_name(f"{folder.name}-bytecode"))

    @classmethod
    def new(cls, folder: Path, torch: str) -> Environment:
        """Create an environment and install ``torch``, a wheel or a requirement."""
        venv.EnvBuilder(symlinks=True, with_pip=True).create(folder)
        environment = cls(folder)
        environment.pip("install", "--prefer-binary", torch, "numpy")
        return environment

    def copied_to(self, folder: Path) -> Environment:
        """Copy it. Files are links; see ``own``."""
        copy_environment(self.folder, folder)
        return Environment(folder)

    def own(self, name: str) -> Path:
        """Return a file of the packages that a test may write to: no other environment has it until the next copy."""
        path = self.packages / name
        copy = path.with_name(f"{path.name}.own")
        shutil.copy2(path, copy)
        return copy.replace(path)

    def pip(self, *arguments: str | Path) -> None:
        command: list[str | Path] = [self.python, "-m", "pip", "-q", "--disable-pip-version-check", *arguments]
        env = {**os.environ, "PIP_NO_COMPILE": "0"}  # means --no-compile: nothing reads the bytecode of all of torch
        subprocess.run(command, env=env, check=True, capture_output=True, text=True)

    def compile(self, text: str, target: Path, *flags: str | Path, torch: Path | None = None) -> Path:
        """Compile a text in C++ with the headers and libraries of its torch, or another one: to what ``flags`` say."""
        torch = torch or self.packages / "torch"
        headers = [f"-I{torch}/include", f"-I{torch}/include/torch/csrc/api/include"]
        libraries = ["-Wl,--no-as-needed", f"-L{torch}/lib", "-ltorch", "-ltorch_cpu", "-lc10"]
        return compiled(text, target, "-std=c++20", *headers, *libraries, *flags)

    def start(self, code: str, **variables: str) -> subprocess.Popen[str]:
        """Start Python code, in a process group of its own."""
        env = {**os.environ, "PYTHONPYCACHEPREFIX": self._bytecode, **variables}
        for name in ("PYTHONPATH", "PYTEST_ADDOPTS", "PYTHONDONTWRITEBYTECODE"):
            env.pop(name, None)
        command, pipe = [self.python, "-c", code], subprocess.PIPE
        return subprocess.Popen(
            command, cwd=self.folder, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )

    def run(self, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run Python code, which must succeed."""
        process = self.start(code, **variables)
        out, said = process.communicate()
        assert process.returncode == 0, said
        return subprocess.CompletedProcess(process.args, 0, out, said)

    def print(self, expression: str) -> str:
        """Return the output for an expression that uses torch; there must be no other output."""
        done = self.run(f"import torch; print({expression})")
        assert not done.stderr
        return done.stdout.strip()

    def about(self) -> str:
        """Return what `python -m torch._graft` prints, where warnings are errors."""
        code = "import runpy, warnings; warnings.simplefilter('error', RuntimeWarning)"
        return self.run(f"{code}; runpy.run_module('torch._graft', run_name='__main__')").stdout

    def content(self) -> dict[str, str]:
        """Return what tells whether a file was written to, for each, and the target of each link."""
        return {
            str(path.relative_to(self.folder)): str(path.readlink()) if path.is_symlink() else _state(path)
            for path in sorted(self.folder.rglob("*"))
            if path.is_symlink() or path.is_file()
        }


def _state(path: Path) -> str:
    status = path.stat()
    if status.st_size > 1_000_000:  # to read the libraries takes seconds
        return f"{status.st_ino} {status.st_size} {status.st_mtime_ns}"
    return hashlib.sha256(path.read_bytes()).hexdigest()


def make(verb: str, environment: Environment, *arguments: str | Path, is_right: bool = True, **variables: str) -> str:
    """Run a verb of the builder on an environment. Return its messages."""
    done = attempt(verb, environment, *arguments, **variables)
    assert (done.returncode == 0) == is_right, done.stderr
    return done.stderr


def attempt(
    verb: str, environment: Environment, *arguments: str | Path, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run a verb of the builder on an environment, which may fail."""
    command: list[str | Path] = [sys.executable, "-m", "graft", verb, "--python", environment.python, *arguments]
    env = {**os.environ, **variables, "PYTHONPATH": str(PACKAGES)}
    return subprocess.run(command, cwd=REPOSITORY, env=env, capture_output=True, text=True, check=False)


def thin_wheel(environment: Environment, native: Path, out: Path, *arguments: str, **variables: str) -> Path:
    """Build the thin wheel of a folder for the torch of an environment."""
    make("thin-wheel", environment, "--pin", "installed", "--native", native, "--out", out, *arguments, **variables)
    (wheel,) = out.glob("*.whl")
    return wheel
