"""Find the objects of a build in the store, and the sources that must be compiled."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from .manifest import InputFiles, Manifest, inputs_of
from .nvcc import Compiler
from .preambles import PREAMBLES
from .store import Store, StoredObject, key_of
from .units import Unit

# The manifest of an object whose compiler wrote no dependencies, or whose headers keep changing.
_UNKNOWN = Manifest({}, {}, is_whole=False)


class Objects:
    """The objects of ``units`` in the folder ``work``.

    Args:
        is_for_edits: whether objects that were compiled with a precompiled header may be used.

    Attributes:
        found: the objects, by unit. Units that must be compiled are missing.
        taken: the units whose objects the work folder lacked and the store had.
        disturbed: a file that changed while a unit was compiled, by unit.
    """

    def __init__(
        self,
        units: Sequence[Unit],
        work: Path,
        files: InputFiles,
        store: Store,
        compilers: Mapping[str, Compiler],
        *,
        is_for_edits: bool,
    ) -> None:
        self._work = work
        self._files = files
        self._store = store
        self._is_for_edits = is_for_edits
        self._keys = {unit: key_of(unit, compilers[unit.compiler], work, files) for unit in units}
        self.found: dict[Unit, StoredObject] = {}
        self.taken: set[Unit] = set()
        self.disturbed: dict[Unit, str] = {}

    def missing(self) -> list[Unit]:
        """Look up the objects in the store. Return the units that must be compiled, and delete their old objects."""
        for unit, key in self._keys.items():
            if unit in self.found and self.found[unit].manifest.holds(self._files):
                continue
            target = self._work / unit.target
            if found := self._store.find(key, target, is_for_edits=self._is_for_edits):
                self.found[unit] = found
                self.taken |= {unit} if found.is_new else set()
            else:
                self.found.pop(unit, None)
                target.unlink(missing_ok=True)
        self.disturbed = {}
        return [unit for unit in self._keys if unit not in self.found]

    def keep(self, compiled: Mapping[Unit, Unit]) -> None:
        """Store the objects that are complete, so that a killed build loses only the others.

        Args:
            compiled: by unit, the unit that was compiled in its place, which may use a precompiled header.
        """
        for unit, made in compiled.items():
            target = self._work / unit.target
            if unit in self.found or unit in self.disturbed or not target.is_file():  # it is renamed when complete
                continue
            paths = (self._work / f"{path}.d" for path in (made.target, *made.needed))
            read = [name for path in paths for name in inputs_of(path) if not name.startswith(f"{PREAMBLES}/")]
            manifest, changed = self._files.manifest(read)
            if changed:
                self.disturbed[unit] = changed[0]
            else:
                manifest = manifest if read else _UNKNOWN
                self.found[unit] = self._store.keep(self._keys[unit], target, manifest, is_exact=not made.needed)

    def accept(self) -> None:
        """Use the objects whose headers keep changing, in this build only."""
        for unit in self.disturbed:
            self.found[unit] = StoredObject(_UNKNOWN, "", is_new=True)
