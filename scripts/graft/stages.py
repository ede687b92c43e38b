"""The stages of a graft, in order. Each uses the results of the stages before it."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from .base.base import Base
from .base.torchgen import torchgen_command
from .check.run import check_native
from .codegen import DESCRIPTION, SOURCES_ARE_THERE
from .codegen.description import Description
from .compile.link import Linker, Product
from .compile.ninja import Compiler, Names, compile_units
from .compile.preambles import with_preambles
from .compile.units import CXX, NVCC, Planner, Unit, Units, in_order, lay_out_sources
from .compose.files import Made, installed_headers
from .compose.required import require_names
from .core.console import StepLine, Steps
from .core.errors import GraftError, OperatorError, PinError, refuse_full, run_all
from .core.files import write_atomically
from .core.layout import Layout
from .inputs.cuda_plan import Cuda, plan_cuda
from .inputs.cuda_toolkit import Nvcc
from .inputs.patches import load_series, patched
from .inputs.snapshot import Snapshot

# Chooses the libraries of a delivery.
Plan = Callable[[Units, Base, Nvcc | None], list[Product]]


class Graft:
    """Builds one snapshot for one base."""

    def __init__(self, layout: Layout, snapshot: Snapshot, base: Base, jobs: int, steps: Steps) -> None:
        self._layout = layout
        self._snapshot = snapshot
        self._base = base
        self._jobs = jobs
        self._steps = steps
        self._native = snapshot.lay_out()
        self.cuda = Cuda()
        self._names = Names(self._native.path, snapshot.translate)

    def make(self, plan: Plan) -> Made:
        """Run the stages up to the linked libraries."""
        layout, base = self._layout, self._base
        with self._steps.counted("find the CUDA toolkit"):
            self.cuda = plan_cuda(self._snapshot, base, self._native)
        patches = load_series(self._snapshot.patches)
        products: list[Product] = []

        def chosen(units: Units) -> Iterable[Unit]:
            products.extend(plan(units, base, self.cuda.nvcc))
            return (unit for product in products for unit in product.units)

        patched_files = self._check_and_compile(chosen, lambda: patched(patches, base.tree, layout.work))
        with self._steps.step("link"):
            libraries = Linker(layout, base, self._snapshot.toolchain, self._names).link(products)
        hash_ = hashlib.sha256(f"{self._snapshot.stamp}{self.cuda.description}".encode()).hexdigest()[:10]
        description = Description.load(layout.generated / DESCRIPTION)
        return Made(hash_, self._native, description, patched_files, layout.generated / "wheel", libraries)

    def check_cuda(self) -> Nvcc:
        """Compile only the CUDA sources. Return the compiler.

        Raises:
            GraftError: also if the base has no CUDA, or no toolkit is available.
        """
        if not self._base.cuda:
            raise PinError(
                f"{self._snapshot.pin.path}: torch {self._base.version} is for CPU, and has no CUDA headers",
                todo="set PIN to a torch for CUDA",
            )
        self.cuda = plan_cuda(self._snapshot, self._base, self._native, is_required=True)
        assert self.cuda.nvcc is not None
        self._check_and_compile(lambda units: units.cuda, dict)
        return self.cuda.nvcc

    def _check_and_compile(
        self, chosen: Callable[[Units], Iterable[Unit]], patches_of: Callable[[], dict[str, bytes]]
    ) -> dict[str, bytes]:
        """Generate and compile while the folder is checked. Return the patched files.

        Errors found by the checks replace those of torchgen and the compiler, because they are more precise.

        Raises:
            GraftError: lists every error.
        """
        generator = Generator(self._layout, self._snapshot, self._base, self.cuda.how)
        with ThreadPoolExecutor(1) as pool:
            checks = pool.submit(self._check, patches_of)
            try:
                with self._steps.step("generate"):
                    generator.start()
                with self._steps.step("check and compile") as line:
                    try:
                        self._compile(line, chosen, lambda: checks.done() and checks.exception() is not None)
                    except KeyboardInterrupt:
                        generator.stop()
                        raise
                    finally:
                        # Also if a source does not compile, so that the next build does not generate again.
                        generator.finish()
                    return checks.result()
            except GraftError:
                generator.stop()
                checks.result()
                raise
            except BaseException:
                generator.stop()
                raise

    def _check(self, patches_of: Callable[[], dict[str, bytes]]) -> dict[str, bytes]:
        tree = self._base.tree
        _, files, *_ = run_all(
            lambda: check_native(self._snapshot, tree, self._layout.work / "checked"),
            patches_of,
            lambda: installed_headers(tree, self._native),
            lambda: require_names(tree, note=self._layout.base / "required-names"),
        )
        from .base import symbol_index  # noqa: F401  # numpy, which linking needs; compilers run meanwhile

        return dict(files)

    def _compile(
        self, line: StepLine, chosen: Callable[[Units], Iterable[Unit]], is_futile: Callable[[], bool]
    ) -> None:
        host, nvcc = self._snapshot.toolchain, self.cuda.nvcc
        compilers: dict[str, Compiler] = {CXX: host} | ({NVCC: nvcc} if nvcc else {})
        lay_out_sources(self._layout, self._native)
        units = Planner(self._layout, self._base, host, nvcc).plan(self._native)
        preambles: list[Unit] = []
        if host.is_for_edits:
            headers = [self._layout.sources / name for name in self._native.headers]
            library, preambles = with_preambles(units.library, self._layout.work, headers, host.description)
            units = replace(units, library=library)
        every = in_order([*chosen(units), *preambles])
        compile_units(self._layout, every, compilers, self._jobs, line, self._names, is_futile)


class Generator:
    """The process that runs torchgen. Compilation starts as soon as its sources exist, before it has written
    everything.
    """

    def __init__(self, layout: Layout, snapshot: Snapshot, base: Base, cuda: str) -> None:
        self._layout = layout
        self._snapshot = snapshot
        self._base = base
        self._cuda = cuda
        self._process: subprocess.Popen[str] | None = None
        self._output: list[str] = []

    def start(self) -> None:
        """Run torchgen on the merged YAML, unless its output is up to date. Return when the sources exist.

        Raises:
            OperatorError: torchgen's message, with file and line in the native folder.
        """
        generated = self._layout.generated
        stamp = f"{self._snapshot.stamp_of_generated} {self._cuda}"
        self._done = generated / "complete"
        if self._done.is_file() and self._done.read_text(encoding="utf-8") == stamp:
            return
        self._stamp = stamp
        self._done.unlink(missing_ok=True)
        natives = self._snapshot.natives
        arguments: list[str | Path] = ["--base", self._base.tree, "--native", *natives, "--out", generated]
        arguments += ["--cuda", self._cuda]
        command, env = torchgen_command(self._base.tree, "graft.codegen", *arguments)
        self._process = subprocess.Popen(
            command,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,  # it has a child process; `stop` ends both
        )
        assert self._process.stdout is not None
        for text in self._process.stdout:
            if text.strip() == SOURCES_ARE_THERE:
                return
            self._output.append(text)
        self.finish()

    def finish(self) -> None:
        """Wait until it has finished.

        Raises:
            OperatorError: see ``start``.
            RefusedError: the disk is full.
        """
        if self._process is None:
            return
        process, self._process = self._process, None
        output, _ = process.communicate()
        message = "".join([*self._output, output or ""]).strip()
        if process.returncode != 0:
            refuse_full(message, self._layout.work)
            raise OperatorError(self._snapshot.translate(message))
        write_atomically(self._done, self._stamp)

    def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
