"""The stages from a snapshot to linked libraries. Each uses the results of the stages before it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from .base.base import Base
from .base.callers import kept_calls
from .check.process import Generator
from .codegen import DESCRIPTION, KERNELS, NO_CUDA
from .codegen.description import Description
from .compile import ninja
from .compile.cuda import Cuda, Nvcc, plan_cuda
from .compile.manifest import Outside
from .compile.stubs import replaced_stubs
from .compile.units import CXX, NVCC, Planner, Product, Units, link_operators
from .compose.appending import require_names
from .compose.files import Made, installed_headers
from .core.console import StepLine, Steps, say
from .core.errors import CommandError, GraftError, PinError, run_all
from .core.layout import Layout
from .inputs.entries import fields_of, texts_of_entries
from .inputs.merge import PACKAGED
from .inputs.native import FUNCTIONS
from .inputs.patches import patched
from .inputs.snapshot import Snapshot
from .inputs.toolchain import Toolchain

# The number of functions shown that keep kernels of PyTorch which are replaced.
_CALLS_SHOWN = 5

# Chooses the libraries of a delivery.
Plan = Callable[[Units, Base, Nvcc | None], list[Product]]


@dataclass(frozen=True)
class Job:
    """A build for one base.

    Args:
        layout: its folders.
        snapshot: its inputs.
        base: what is built on.
        jobs: the maximum number of compilers to run at once.
        steps: shows the progress.
    """

    layout: Layout
    snapshot: Snapshot
    base: Base
    jobs: int
    steps: Steps


def make(job: Job, plan: Plan) -> Made:
    """Run the stages up to the linked libraries."""
    with job.steps.counted("find the CUDA toolkit"):
        cuda = _plan_cuda(job)
    libraries, outside, stubs, patched_files = _make(job, cuda, plan)
    description = Description.load(job.layout.generated / DESCRIPTION)
    description.replaced.update((stub, ["dispatch stub"]) for stub in stubs)
    if description.replaced:
        say(f"replaced in PyTorch: {', '.join(description.replaced_lines)}")
        calls = [f"{called} in {' and '.join(callers)}" for called, callers in _kept_calls(job).items()]
        if calls:
            more = f"; and {len(calls) - _CALLS_SHOWN} more" if len(calls) > _CALLS_SHOWN else ""
            say(f"calls that keep PyTorch's own: {'; '.join(calls[:_CALLS_SHOWN])}{more}")
    inputs = (job.snapshot.stamp, cuda.description, outside.contents)
    return Made(
        hash_=hashlib.sha256("".join(inputs).encode()).hexdigest()[:10],
        stamp=outside.with_stamp(job.snapshot.stamp),
        outside=outside,
        natives=job.snapshot.natives,
        description=description,
        patched=patched_files,
        generated=job.layout.generated / "wheel",
        libraries=libraries,
        cuda=cuda.request,
    )


def _kept_calls(job: Job) -> dict[str, list[str]]:
    """Return the functions of PyTorch that go on calling kernels that the folder replaces, by name of the kernel."""
    theirs = texts_of_entries(job.base.tree / PACKAGED[FUNCTIONS] / FUNCTIONS)
    ours = job.snapshot.natives.entries(FUNCTIONS, replacing=True)
    replaced = [(entry, fields_of(theirs[entry.operator])) for entry in ours]
    try:
        return kept_calls(job.base.libraries / "libtorch_cpu.so", replaced, job.layout.base / "direct-calls.json")
    except CommandError:
        return {}  # binutils with other names, or for another processor; a note is not worth a build


def make_for_cuda(job: Job) -> Nvcc:
    """Compile only the CUDA sources. Return the compiler.

    Raises:
        GraftError: also if the base has no CUDA, or no toolkit is available.
    """
    if not job.base.cuda:
        raise PinError(
            f"{job.snapshot.pin.path}: torch {job.base.version} is for CPU, and has no CUDA headers",
            todo="set PIN to a torch for CUDA",
        )
    cuda = _plan_cuda(job, is_required=True)
    assert cuda.nvcc is not None
    _make(job, cuda, None)
    return cuda.nvcc


def _plan_cuda(job: Job, *, is_required: bool = False) -> Cuda:
    wanted, home = job.layout.cuda_archs.strip(), job.layout.cuda_home
    return plan_cuda(job.snapshot, job.base, job.snapshot.natives, wanted, home, is_required=is_required)


def _make(job: Job, cuda: Cuda, plan: Plan | None) -> tuple[dict[str, Path], Outside, list[str], dict[str, bytes]]:
    """Check the folder, generate, compile and link. Return the libraries, what was read elsewhere, the base's dispatch
    stubs that they have kernels for, and the patched files.

    Without a plan, only what is for CUDA is compiled.

    Raises:
        GraftError: lists every error. Those that the check finds are raised instead of the compiler's, because they are
            more precise.
    """
    steps = job.steps
    with Generator(job.layout, job.snapshot, job.base, cuda.how) as generator:
        with steps.step("generate"):
            _, files = run_all(generator.start, lambda: _check_base(job))
        try:
            with steps.step("compile and link") as line:
                libraries, outside, stubs = _compile(job, cuda.nvcc, plan, line, lambda: generator.is_refused)
        except GraftError:
            generator.finish()
            raise
        generator.finish()
    return libraries, outside, stubs, files


def check(job: Job) -> None:
    """Check the native folder, the patches and the base, and generate: all of a build that needs no compiler.

    Raises:
        GraftError: lists every error.
    """
    how = KERNELS if job.base.cuda and job.snapshot.natives.cuda else NO_CUDA
    with Generator(job.layout, job.snapshot, job.base, how) as generator:

        def generate() -> None:
            generator.start()
            generator.finish()

        run_all(generate, lambda: _check_base(job))


def _check_base(job: Job) -> dict[str, bytes]:
    """Check the patches and the base. Return the patched files."""
    tree, work = job.base.tree, job.layout.work
    files: dict[str, bytes]
    files, *_ = run_all(
        lambda: patched(job.snapshot.series, tree, work),
        lambda: installed_headers(tree, job.snapshot.natives),
        lambda: require_names(tree, note=job.layout.base / "required-names"),
    )
    return files


def _compile(
    job: Job, nvcc: Nvcc | None, plan: Plan | None, line: StepLine, is_refused: Callable[[], bool]
) -> tuple[dict[str, Path], Outside, list[str]]:
    link_operators(job.layout)
    units = Planner(job.layout, job.base, job.snapshot.toolchain, nvcc).plan(job.snapshot.natives)
    products = plan(units, job.base, nvcc) if plan else []
    compilers: dict[str, Toolchain | Nvcc] = {CXX: job.snapshot.toolchain} | ({NVCC: nvcc} if nvcc else {})
    others = units.tried if plan else units.cuda
    libraries, outside = ninja.make(
        *(job.layout, job.snapshot, products, job.base, compilers),
        others=others,
        jobs=job.jobs,
        line=line,
        is_refused=is_refused,
    )
    own = [unit for unit in units.library if unit.source.parts[0] == "src"] if plan else []
    return libraries, outside, replaced_stubs(own, job.layout.work, [job.base.libraries / "libtorch_cpu.so"])
