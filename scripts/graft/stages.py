"""The stages from a snapshot to linked libraries. Each uses the results of the stages before it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Thread

from .base.base import ALWAYS_BOUND, Base
from .base.callers import kept_calls, python_overrides
from .base.symbols import keep_indexes
from .check.generator import Generator
from .codegen import DESCRIPTION, KERNELS, NO_CUDA
from .codegen.description import Description
from .compile.bundle import bundle
from .compile.commands import write_commands
from .compile.cuda import Cuda, find_cuda
from .compile.extensions import (
    NO_EXTENSIONS,
    Extensions,
    build_extensions,
    check_cuda_of_extensions,
    have_cuda,
    nvcc_of_extensions,
    units_of_extensions,
)
from .compile.incremental import bring_up_to_date
from .compile.manifest import Outside
from .compile.nvcc import Compiler, Nvcc
from .compile.products import LINKED, Product, with_libraries
from .compile.stubs import replaced_stubs
from .compile.units import CXX, NVCC, UnitFinder, Units, link_operators
from .compose.appending import require_names
from .compose.composition import Made, installed_headers
from .core.console import StepLine, Steps, say
from .core.cuda_settings import CudaArchs, newest
from .core.errors import CommandError, Finding, GraftError, UsageError, run_all
from .core.layout import DEBUG, DEVELOP, Layout
from .inputs.entries import fields_of, texts_of_entries
from .inputs.merge import PACKAGED
from .inputs.native import FUNCTIONS, kernels_for_cuda
from .inputs.patches import patched
from .inputs.snapshot import Snapshot

# The most names that one line of output lists.
_CALLS_SHOWN = 5

# Returns the libraries that a delivery links.
ProductsOf = Callable[[Units, Base, Nvcc | None], list[Product]]


@dataclass(frozen=True)
class Job:
    """A build for one base.

    Args:
        layout: its folders.
        snapshot: its inputs.
        base: the PyTorch to build on.
        jobs: the maximum number of compilers to run at once.
        steps: shows the progress.
    """

    layout: Layout
    snapshot: Snapshot
    base: Base
    jobs: int
    steps: Steps


def make(job: Job, products_of: ProductsOf, *, has_lists: bool) -> Made:
    """Run the stages up to the linked libraries; ``has_lists`` as for ``codegen.__main__.generate``."""
    with job.steps.counted("find the CUDA toolkit"):
        cuda = _find_cuda(job)
    libraries, outside, stubs, patched_files = _make(job, cuda, products_of, has_lists=has_lists)
    extensions = _extensions(job, cuda.of_extensions)
    outside = replace(
        outside, hashes={**outside.hashes, **extensions.outside.hashes}, made=outside.made or extensions.outside.made
    )
    if job.snapshot.left_out:
        say(f"not for torch {job.base.version}, and left out: {', '.join(job.snapshot.left_out)}")
    description = replace(Description.load(job.layout.generated / DESCRIPTION), stubs=stubs)
    if laid_over := sorted(job.snapshot.natives.overlay):
        more = f" and {len(laid_over) - _CALLS_SHOWN} more" if len(laid_over) > _CALLS_SHOWN else ""
        say(f"laid over PyTorch's: {', '.join(laid_over[:_CALLS_SHOWN])}{more}")
    if description.replaced_parts:
        say(f"replaced in PyTorch: {', '.join(description.replaced_lines)}")
        calls = [f"{called} in {' and '.join(callers)}" for called, callers in _kept_calls(job).items()]
        if calls:
            more = f"; and {len(calls) - _CALLS_SHOWN} more" if len(calls) > _CALLS_SHOWN else ""
            say(f"calls that keep PyTorch's own: {'; '.join(calls[:_CALLS_SHOWN])}{more}")
        entries = job.snapshot.natives.entries(FUNCTIONS, replacing=True)
        if overrides := python_overrides(job.base.tree, entries):
            say(f"may be overridden by torch._native, which runs first: {'; '.join(overrides)}")
    inputs = (job.snapshot.stamp, cuda.description, outside.contents)
    return Made(
        hash_=hashlib.sha256("".join(inputs).encode()).hexdigest()[:10],
        outside=outside,
        natives=job.snapshot.natives,
        description=description,
        patched=patched_files,
        generated=job.layout.generated / "wheel",
        libraries=libraries,
        cuda_note=cuda.note,
        extensions=extensions,
    )


def _extensions(job: Job, nvcc: Nvcc | None) -> Extensions:
    """Bring the extensions that stay separate libraries up to date, if there are any."""
    if not job.snapshot.extensions:
        return NO_EXTENSIONS
    with job.steps.step("compile and link extensions") as line:
        return build_extensions(job.layout, job.snapshot, job.base, job.jobs, line, nvcc)


def _kept_calls(job: Job) -> dict[str, list[str]]:
    """Return PyTorch's functions that still call replaced kernels directly, by name of the kernel."""
    theirs = texts_of_entries(job.base.tree / PACKAGED[FUNCTIONS] / FUNCTIONS)
    ours = job.snapshot.natives.entries(FUNCTIONS, replacing=True)
    replaced = [(entry, fields_of(theirs[entry.operator])) for entry in ours]
    try:
        return kept_calls(job.base.libraries / "libtorch_cpu.so", replaced, job.layout.base / "direct-calls.json")
    except CommandError:
        return {}  # binutils are missing, or for another processor; do not fail for a message


def make_for_cuda(job: Job) -> Nvcc:
    """Compile only the CUDA sources, also those of extensions, by default for one architecture: most errors do not
    depend on it. Return the compiler.
    """
    if not job.base.cuda:
        raise UsageError(
            f"{job.snapshot.pin.path}: torch {job.base.version} is for CPU, and has no CUDA headers",
            todo="set PIN to a torch for CUDA",
        )
    wanted, supported = job.layout.cuda, job.base.architectures
    if supported and not wanted.archs:
        job = replace(job, layout=replace(job.layout, cuda=replace(wanted, archs=CudaArchs(newest(supported)))))
    is_own = bool(kernels_for_cuda(job.snapshot.natives)) or not have_cuda(job.snapshot)
    cuda = _find_cuda(job, is_required=is_own)
    _make(job, cuda, None)
    if cuda.of_extensions:
        with job.steps.step("compile extensions") as line:
            check_cuda_of_extensions(job.layout, job.snapshot, job.base, job.jobs, line, cuda.of_extensions)
    nvcc = cuda.nvcc or cuda.of_extensions
    assert nvcc is not None
    return nvcc


def _find_cuda(job: Job, *, is_required: bool = False) -> Cuda:
    snapshot, base, wanted = job.snapshot, job.base, job.layout.cuda
    cuda = find_cuda(snapshot, base, snapshot.natives, wanted, is_required=is_required)
    return replace(cuda, of_extensions=nvcc_of_extensions(snapshot, base, wanted, cuda.nvcc))


def _make(
    job: Job, cuda: Cuda, products_of: ProductsOf | None, *, has_lists: bool = False
) -> tuple[dict[str, Path], Outside, list[str], dict[str, bytes]]:
    """Check the folder, generate, compile and link. Return the libraries, the files read outside of the snapshot, the
    base's dispatch stubs that the libraries have kernels for, and the patched files.

    Without ``products_of``, only the CUDA sources are compiled. If both the check and the compiler find errors, the
    check's are raised, because they are more precise.
    """
    steps = job.steps
    if products_of:  # links need these indexes at the end, and the generator leaves a core idle
        bound = [job.base.libraries / name for name in ALWAYS_BOUND]
        Thread(target=keep_indexes, args=[bound], daemon=True).start()
    with Generator(job.layout, job.snapshot, job.base, cuda.how, has_lists) as generator:
        with steps.step("generate"):
            _, files = run_all(generator.start, lambda: _check_base(job))
        try:
            with steps.step("compile and link") as line:
                libraries, outside, stubs = _compile(job, cuda, products_of, line, lambda: generator.is_refused)
        except GraftError:
            generator.finish()
            raise
        generator.finish()
    return libraries, outside, stubs, files


def check(job: Job) -> set[Finding]:
    """Check the native folder, the patches and the base, and generate: all of a build that needs no compiler. Return
    the warnings.
    """
    how = KERNELS if job.base.cuda and job.snapshot.natives.cuda else NO_CUDA
    with Generator(job.layout, job.snapshot, job.base, how) as generator:

        def generate() -> None:
            generator.start()
            generator.finish()
            _units(job, Cuda())

        run_all(generate, lambda: _check_base(job))
        return generator.findings


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
    job: Job, cuda: Cuda, products_of: ProductsOf | None, line: StepLine, is_refused: Callable[[], bool]
) -> tuple[dict[str, Path], Outside, list[str]]:
    units = _units(job, cuda)
    products = products_of(units, job.base, cuda.nvcc) if products_of else []
    products = with_libraries(products, job.snapshot.libraries)
    contained = _contained(products, job.layout.work)
    others = units.tried if products_of else units.cuda
    libraries, outside = bring_up_to_date(
        *(job.layout, job.snapshot, products, job.base, _compilers(job, cuda.nvcc)),
        others=others,
        jobs=job.jobs,
        line=line,
        is_refused=is_refused,
    )
    libraries |= contained
    own = [unit for unit in units.library if unit.is_own] if products_of else []
    return libraries, outside, replaced_stubs(own, job.layout.work, [job.base.libraries / "libtorch_cpu.so"])


def _compilers(job: Job, nvcc: Nvcc | None) -> dict[str, Compiler]:
    return {CXX: job.snapshot.toolchain} | ({NVCC: nvcc} if nvcc else {})


def _units(job: Job, cuda: Cuda) -> Units:
    """Return the units, once their sources are generated. Tell editors, too, how those of users are compiled."""
    layout, snapshot = job.layout, job.snapshot
    link_operators(layout)
    units = UnitFinder(layout, snapshot.natives, job.base, snapshot.toolchain, cuda.nvcc).units()
    if layout.kind in ("", DEVELOP, DEBUG):
        compilers = _compilers(job, cuda.nvcc)
        compiled = [(unit, compilers[unit.compiler]) for unit in (*units.library, *units.cuda)]
        compiled += units_of_extensions(layout, snapshot, job.base, cuda.of_extensions)
        write_commands(layout, snapshot.natives, compiled, snapshot.toolchain)
    return units


def _contained(products: Sequence[Product], work: Path) -> dict[str, Path]:
    """Copy the libraries bundled with products. Return the copies, by path in the wheel."""
    folders = {product.folder: product.libraries.bundled for product in products if product.libraries.bundled}
    return {
        f"{folder}/{name}": path
        for folder, libraries in folders.items()
        for name, path in bundle(libraries, work / LINKED / folder).items()
    }
