"""PyTorch's own build of the fork: CMake and ninja in ``build/`` of the tree, and its wheel."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..compile.diagnostics import diagnostics
from ..compile.messages import digest, formula_of
from ..compile.ninja import LAUNCHER
from ..core.console import StepLine, say
from ..core.environments import install, make_virtual_environment
from ..core.errors import BuildError, CommandError, UsageError
from ..core.files import Layer, delete, held, write_if_changed
from ..core.process import UNTRANSLATED, follow, run
from ..inputs.native import NativeFolders
from ..inputs.patches import ADDED
from ..inputs.pin import Pin
from ..inputs.toolchain import Toolchain
from .apply import NATIVE
from .cache import Cache
from .placed import places
from .tree import SourceTree

# The names of the tree's generators in CMake (cmake/Codegen.cmake, caffe2/CMakeLists.txt), and what they write.
GENERATORS = ("ATEN_CPU_FILES_GEN_TARGET", "generate-torch-sources")
_GENERATED = ("build/aten/src/ATen/", "torch/csrc/autograd/generated/")

# CMake's install folder, which PyTorch's build copies from.
_INSTALLED = ("torch/bin", "torch/include", "torch/lib", "torch/share")

# The peak memory of a compiler, measured on PyTorch's own sources, with a margin.
_BYTES_PER_JOB = 2500 * 1024**2

# Finished commands, their total number, and ninja's estimate of the remaining time.
_STATUS = "[%f/%t, %W left] "
_IS_STATUS = re.compile(r"\[\d+/\d+, .*? left\] ")
_COMMAND = re.compile(r"^(/\S*|\w+=\S+|:) .* && |^\S*/(ccache|g\+\+|gcc|c\+\+|cc|python\S*|cmake) |^ninja: ")

# The number of lines of compilers' messages shown; the first ones matter most.
_SHOWN = 60


@dataclass(frozen=True)
class PyTorchBuild:
    """The fork's tree, and how PyTorch's build runs in it.

    Args:
        natives: the native folders, for messages.
        sources: the files that the fork adds or changes, by name in the tree.
        jobs: the maximum number of compilers to run at once.
        launcher: the command before each compiler; if empty, ccache if it is installed, as in PyTorch's CMake files.
    """

    tree: SourceTree
    pin: Pin
    cache: Cache
    toolchain: Toolchain
    natives: NativeFolders
    sources: Sequence[str]
    jobs: int
    launcher: str = ""

    @property
    def _build(self) -> Path:
        return self.tree.path / "build"

    @property
    def is_configured(self) -> bool:
        """Whether single files can be compiled now."""
        return (self._build / "compile_commands.json").is_file()

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables of PyTorch's build. ccache ignores paths below the tree, so that objects of other
        trees are reused.
        """
        path = os.pathsep.join([str(self.cache.environment / "bin"), os.environ.get("PATH", os.defpath)])
        # The objects of all pins' builds.
        objects = os.environ.get("CCACHE_DIR", str(self.cache.folder.parent / "ccache"))
        ccache = {"CCACHE_DIR": objects, "CCACHE_BASEDIR": str(self.tree.path), "CCACHE_NOHASHDIR": "1"}
        launched = {
            LAUNCHER: self.launcher or ("ccache" if shutil.which("ccache", path=path) else ""),
            **{f"CMAKE_{language}_COMPILER_LAUNCHER": str(self._launcher) for language in ("C", "CXX")},
        }
        ours = {"PATH": path, "CXX": self.toolchain.compiler, "MAX_JOBS": str(self.jobs), "NINJA_STATUS": _STATUS}
        return {**self.pin.settings.variables, **ours, **launched, **ccache}

    @property
    def _launcher(self) -> Path:
        return self._build / "launcher"

    def write_launcher(self) -> None:
        """Write the script that commands use as launcher, and that calls the real one. ninja compiles again if a
        command changes, so without the script, another launcher would compile everything. CMake's checks run without
        the real launcher: if that failed, CMake would take a feature for missing.
        """
        tried = 'case $PWD in */CMakeFiles/*) exec "$@" ;; esac'
        write_if_changed(self._launcher, f'#!/bin/sh\n{tried}\nexec ${LAUNCHER} "$@"\n')
        self._launcher.chmod(0o755)

    def configure(self) -> None:
        """Create the environment of the build. If the tree has a setup.py with the option --cmake-only, run CMake, so
        that it finds new files.
        """
        needed = [*self.pin.settings.python, "build"]

        def make(folder: Path) -> None:
            make_virtual_environment(folder)
            install(folder, *needed, what="what PyTorch's build needs")

        with held(self.cache.environment, [Layer(f"{sys.version} {needed}", make)]):
            pass
        self.write_launcher()
        setup = self.tree.path / "setup.py"
        if not (setup.is_file() and "--cmake-only" in setup.read_text(encoding="utf-8")):
            return
        again = ["--cmake"] if (self._build / "CMakeCache.txt").is_file() else []
        command = ["python", "setup.py", "build", "--cmake-only", *again]
        try:
            run(command, cwd=self.tree.path, env=self.variables)
            for schema in self.pin.settings.flatbuffers:
                self._make_flatbuffers_header(schema)
        except CommandError as error:
            todo = "fix it and run the same command again"
            raise UsageError(f"{self.tree.path}: {error.what}", cause=error.cause, todo=todo) from error

    def _make_flatbuffers_header(self, schema: str) -> None:
        """Generate a header for the system's flatbuffers, in place of the tree's header for another version, in the
        build folder, which compilers search first.
        """
        folder = self._build / Path(schema).parent
        aside = folder / ".made"
        aside.mkdir(parents=True, exist_ok=True)
        run(["flatc", "--cpp", "--gen-mutable", "--scoped-enums", "-o", aside, self.tree.path / schema])
        for header in aside.iterdir():
            write_if_changed(folder / header.name, header.read_bytes())

    def ninja(self, line: StepLine, targets: Sequence[str]) -> None:
        """Build ``targets``. After an interruption, the next call continues with what is left."""
        if targets:
            self._follow(["ninja", "-C", self._build, "-j", str(self.jobs), "-k", "0", *targets], line)

    def wheel(self, folder: Path, line: StepLine) -> Path:
        """Build everything that is left, with this PyTorch's own build backend. Return its wheel in ``folder``."""
        # The build replaces files that it installed in the tree for an earlier wheel, but never deletes any: those of
        # removed operators would be in every later wheel. Some of these folders also contain sources, which stay.
        for old in (folder, *self._build.glob("lib.*")):
            delete(old)
        self.tree.git("clean", "--quiet", "--force", "-d", "-x", "--", *_INSTALLED)
        # The pin lists what the build needs. setuptools ignores the build folder; scikit-build-core would choose a
        # temporary one.
        options = ["--wheel", "--no-isolation", "--skip-dependency-check", "-Cbuild-dir=build", f"--outdir={folder}"]
        self._follow([self.cache.environment / "bin/python", "-m", "build", *options, self.tree.path], line)
        wheels = list(folder.glob("torch-*.whl"))
        if len(wheels) != 1:
            raise BuildError(f"{folder}: expected one wheel from PyTorch's build, but got {len(wheels)}")
        return wheels[0]

    def _follow(self, command: Sequence[str | Path], line: StepLine) -> None:
        output: list[str] = []

        def read(text: str) -> None:
            if _IS_STATUS.match(text):
                progress, _, what = text.strip().partition("] ")
                line.update(f"{progress}] {what.rsplit('/', 1)[-1][-60:]}")
            else:
                output.append(text)

        if follow(command, read, env={**self.variables, **UNTRANSLATED}) != 0:
            raise BuildError(
                self._messages(output) or f"{self.tree.path}: its build failed without a message",
                todo="fix the source named above and build again; compiled files are kept",
            )

    def _messages(self, output: Sequence[str]) -> str:
        """Return the messages of compilers and generators without the commands that ninja repeats."""
        failed = [number for number, text in enumerate(output) if text.startswith("FAILED: ")]
        said = [text for text in output[min(failed, default=0) :] if not _COMMAND.search(text)]
        text = "".join(said[:_SHOWN] if failed else said[-_SHOWN:]).strip()
        for own, place in places(self.natives).items():
            if (name := f"{NATIVE}/{place.as_posix()}") in self.sources:
                theirs = self.natives.file(own)
                # As seen from build/, where compilers run, or in the copy for a CPU capability, which includes it.
                for path in (f"../{name}", str(self.tree.path / name)):
                    text = text.replace(f"{path}:", f"{theirs}:")
        errors = diagnostics(text.splitlines(), *(folder.path for folder in self.natives.folders))
        of_formulas = [each for each in errors if not each.user and formula_of(each.function, self.natives)]
        return "\n".join([*digest(of_formulas, self.natives, ()), text])

    def objects(self, *, with_generated: bool = False) -> list[str]:
        """Return the object files of the sources of the fork, and of generated ones that name its operators."""
        commands = json.loads((self._build / "compile_commands.json").read_text(encoding="utf-8"))
        outputs = {Path(each["file"]).relative_to(self.tree.path).as_posix(): str(each["output"]) for each in commands}
        # A vectorized source is copied for each CPU capability: build/aten/[...]/cpu/Kernel.cpp.AVX2.cpp.
        sources = {name: re.sub(r"\.cpp\.\w+\.cpp$", ".cpp", name.removeprefix("build/")) for name in outputs}
        compiled = set(sources.values())
        ours, where = (*self.natives.sources, *self.natives.vectorized), places(self.natives)
        if missing := [name for name in ours if f"{NATIVE}/{where[name].as_posix()}" not in compiled]:
            raise BuildError(
                "\n".join(f"{self.natives.file(name)}: PyTorch's build does not compile this file" for name in missing),
                cause="aten/src/ATen/CMakeLists.txt and cmake/Codegen.cmake list the folders that are compiled",
                todo="move it into one of these, or have a patch of the pin list its folder",
            )
        chosen = [name for name in outputs if sources[name] in self.sources]
        if with_generated:
            added = re.findall(r'^    "\w+::(\w+)', (self.tree.path / ADDED).read_text(encoding="utf-8"), re.M)
            operator = re.compile(rf"\b({'|'.join(added)})\b")
            files = {name: self.tree.path / name for name in outputs if name.startswith(_GENERATED)}
            texts = {name: file.read_text(encoding="utf-8") for name, file in files.items() if file.is_file()}
            chosen += [name for name, text in texts.items() if operator.search(text)]
        return [outputs[name] for name in chosen]


def affordable(jobs: int) -> int:
    """Return how many of ``jobs`` compilers fit into the available memory and the limit of the control group."""
    fields = dict(line.split(":") for line in Path("/proc/meminfo").read_text(encoding="utf-8").splitlines())
    free = int(fields["MemAvailable"].split()[0]) * 1024
    limit, used = (Path("/sys/fs/cgroup") / name for name in ("memory.max", "memory.current"))
    if limit.is_file() and used.is_file() and (allowed := limit.read_text(encoding="utf-8").strip()).isdigit():
        free = min(free, int(allowed) - int(used.read_text(encoding="utf-8")))
    room = max(1, free // _BYTES_PER_JOB)
    if room < jobs:
        say(f"      {room} of {jobs} compilers at once: not enough memory for more")
    return min(jobs, room)
