"""Find the libraries that must be linked again, because their plan or their inputs have changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..core.files import write_if_changed
from ..inputs.snapshot import hash_of_builder
from .products import LinkPlan, Product
from .store import StoredObject
from .units import Unit


class Libraries:
    """The libraries of ``plans`` in the folder ``work``. A file beside each library holds a hash of its inputs."""

    def __init__(self, work: Path, plans: Sequence[LinkPlan]) -> None:
        self._work = work
        self._plans = plans

    def stale(self, found: Mapping[Unit, StoredObject]) -> list[Product]:
        """Return the libraries that must be linked, and delete their outdated files."""
        stale = []
        for plan, digest in self._digests(found):
            plan.write(self._work / plan.product.plan)
            if not is_linked(self._work / plan.product.path, digest):
                stale.append(plan.product)
        return stale

    def note(self, found: Mapping[Unit, StoredObject]) -> None:
        """Write the hash of each library's inputs."""
        for plan, digest in self._digests(found):
            write_if_changed(note_of(self._work / plan.product.path), digest)

    def _digests(self, found: Mapping[Unit, StoredObject]) -> Iterator[tuple[LinkPlan, str]]:
        """Yield each plan with a hash of its inputs; empty if an object is missing, or its headers keep changing."""
        digests: dict[str, str] = {}
        for plan in self._plans:  # a library comes after those that it loads
            product = plan.product
            parts = [hash_of_builder(), repr(plan)]
            parts += [found[unit].state if unit in found else "" for unit in (*product.units, *product.provided)]
            parts += [digests[name] for name in product.loaded]
            for path in (*(plan.libraries / name for name in product.bound), *product.offered):
                status = path.stat()
                parts.append(f"{status.st_size} {status.st_mtime_ns}")
            digests[product.name] = hashlib.sha256("\0".join(parts).encode()).hexdigest() if all(parts) else ""
            yield plan, digests[product.name]


def is_linked(library: Path, digest: str) -> bool:
    """Return whether ``library`` was linked from inputs with this hash. If it was not, delete it."""
    note = note_of(library)
    if digest and library.is_file() and note.is_file() and note.read_text(encoding="utf-8") == digest:
        return True
    # If this build fails, it may have linked the library from objects that the next build does not use.
    note.unlink(missing_ok=True)
    library.unlink(missing_ok=True)
    return False


def note_of(library: Path) -> Path:
    """Return the file beside ``library`` that holds the hash of its inputs."""
    return library.with_name(f"{library.name}.inputs")
