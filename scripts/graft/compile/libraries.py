"""Which libraries must be linked: those whose plan or objects have changed since they were linked."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..core.files import read_json, write_atomically, write_if_changed
from ..inputs.snapshot import hash_of_builder
from .store import Found
from .units import LINKED, Product, Unit


class Libraries:
    """The libraries of ``products`` in the folder ``work``, with the text of each one's plan, by name; and the folder
    of the base's.
    """

    def __init__(self, work: Path, products: Sequence[Product], plans: Mapping[str, str], base: Path) -> None:
        self._work = work
        self._base = base
        self._products = products
        self._plans = plans
        self._note = work / "objects/linked.json"

    def stale(self, found: Mapping[Unit, Found]) -> list[Product]:
        """Return what must be linked, and delete the libraries of it: they were linked from other objects."""
        noted, now = read_json(self._note), self._digests(found)
        stale = []
        for product in self._products:
            write_if_changed(self._work / plan_of(product), self._plans[product.name])
            is_there = (self._work / LINKED / product.name).is_file()
            if not (is_there and now[product.name] and noted.get(product.name) == now[product.name]):
                stale.append(product)
        # A build that fails may link some of them, from objects that the next one does not have.
        left = {name: digest for name, digest in noted.items() if name not in {product.name for product in stale}}
        write_atomically(self._note, json.dumps(left))
        for product in stale:
            (self._work / LINKED / product.name).unlink(missing_ok=True)
        return stale

    def note(self, found: Mapping[Unit, Found]) -> None:
        """Note what the libraries were linked from."""
        write_atomically(self._note, json.dumps({**read_json(self._note), **self._digests(found)}))

    def _digests(self, found: Mapping[Unit, Found]) -> dict[str, str]:
        """Return what decides about each library; nothing where an object is missing, or will be another."""
        digests: dict[str, str] = {}
        for product in self._products:  # what another one loads is before it
            parts = [hash_of_builder(), self._plans[product.name]]
            parts += [found[unit].state if unit in found else "" for unit in (*product.units, *product.provided)]
            parts += [digests[name] for name in product.loaded]
            for path in (*(self._base / name for name in product.bound), *product.offered):
                status = path.stat()
                parts.append(f"{status.st_size} {status.st_mtime_ns}")
            digests[product.name] = hashlib.sha256("\0".join(parts).encode()).hexdigest() if all(parts) else ""
        return digests


def plan_of(product: Product) -> Path:
    """Return the path of the plan of a product from the work folder."""
    return Path("plans", f"{Path(product.name).name}.json")
