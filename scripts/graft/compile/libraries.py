"""Which libraries must be linked: those whose plan or objects have changed since they were linked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..core.files import read_json, write_atomically
from ..inputs.snapshot import hash_of_builder
from .products import LinkPlan, Product
from .store import StoredObject
from .units import Unit


class Libraries:
    """The libraries with these ``plans``, in the folder ``work``."""

    def __init__(self, work: Path, plans: Sequence[LinkPlan]) -> None:
        self._work = work
        self._plans = plans
        self._note = work / "objects/linked.json"

    def stale(self, found: Mapping[Unit, StoredObject]) -> list[Product]:
        """Return the libraries that must be linked. They are deleted, since they were linked from other objects."""
        noted, now = read_json(self._note), self._digests(found)
        stale = []
        for plan in self._plans:
            product = plan.product
            plan.write(self._work / product.plan)
            is_there = (self._work / product.path).is_file()
            if not (is_there and now[product.name] and noted.get(product.name) == now[product.name]):
                stale.append(product)
        # A build that fails may link some of them, from objects that the next one does not have.
        left = {name: digest for name, digest in noted.items() if name not in {product.name for product in stale}}
        write_atomically(self._note, json.dumps(left))
        for product in stale:
            (self._work / product.path).unlink(missing_ok=True)
        return stale

    def note(self, found: Mapping[Unit, StoredObject]) -> None:
        """Note what the libraries were linked from."""
        write_atomically(self._note, json.dumps({**read_json(self._note), **self._digests(found)}))

    def _digests(self, found: Mapping[Unit, StoredObject]) -> dict[str, str]:
        """Return what decides about each library; nothing where an object is missing, or will be another."""
        digests: dict[str, str] = {}
        for plan in self._plans:  # those that a library loads come before it
            product = plan.product
            parts = [hash_of_builder(), repr(plan)]
            parts += [found[unit].state if unit in found else "" for unit in (*product.units, *product.provided)]
            parts += [digests[name] for name in product.loaded]
            for path in (*(plan.libraries / name for name in product.bound), *product.offered):
                status = path.stat()
                parts.append(f"{status.st_size} {status.st_mtime_ns}")
            digests[product.name] = hashlib.sha256("\0".join(parts).encode()).hexdigest() if all(parts) else ""
        return digests
