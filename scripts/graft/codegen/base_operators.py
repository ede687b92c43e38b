"""PyTorch's own operators as the base's torchgen parses them. They are cached, since parsing takes seconds."""

from __future__ import annotations

import functools
import hashlib
import pickle
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..core.files import files_below, write_atomically
from ..core.layout import store
from ..inputs.merge import PACKAGED
from ..inputs.native import DERIVATIVES, FUNCTIONS
from . import torchgen
from .torchgen import Infos, Kernels, NativeFunction

# The tag of functions that torchgen generates, which are in no YAML.
_GENERATED = "generated"


@dataclass(frozen=True)
class Known:
    """The operators of the base.

    Args:
        functions: all functions; those in the YAML come before those that torchgen generates.
        kernels: their kernels, by dispatch key.
        infos: their derivative formulas.
        dispatch_keys: the dispatch keys that have derivative formulas.
    """

    functions: list[NativeFunction]
    kernels: Kernels
    infos: Infos
    dispatch_keys: set[str]

    @property
    def written(self) -> tuple[list[NativeFunction], Kernels]:
        """The functions that the YAML has, and a copy of their kernels."""
        made = {f.func.name for f in self.functions if _GENERATED in f.tags}
        functions = [f for f in self.functions if f.func.name not in made]
        pairs = ((key, index.items()) for key, index in self.kernels.items())
        return functions, {key: {name: kernel for name, kernel in of_key if name not in made} for key, of_key in pairs}


@functools.cache
def known_operators(tree: Path, kept: Path | None = None) -> Known:
    """Return the operators of the base in ``tree``. ``kept`` is the cache's folder, by default in the store."""
    path = (kept or store() / "operators") / f"{_identity(tree)}.pickle"
    try:
        known = pickle.loads(path.read_bytes())
        if isinstance(known, Known):
            return known
    except Exception:  # damaged data raises arbitrary errors
        pass
    known = _parsed(tree)
    with suppress(OSError):  # a full disk costs only time
        write_atomically(path, pickle.dumps(known, protocol=pickle.HIGHEST_PROTOCOL))
    return known


def known_tags(tree: Path) -> set[str]:
    """Return the valid tags of entries."""
    return set(torchgen.parse_tags_yaml(_tags_file(tree)))


def _tags_file(tree: Path) -> str:
    return str(tree / PACKAGED[FUNCTIONS] / "tags.yaml")


def _identity(tree: Path) -> str:
    """Return a hash of everything that parsing depends on: torchgen, its YAML, Python, and our modules."""
    digest = hashlib.sha256(f"{sys.version} {sys.implementation.cache_tag}".encode())
    texts = [name for name in files_below(tree / "torchgen") if name.suffix in (".py", ".yaml")]
    for path in (Path(__file__), Path(torchgen.__file__), *(tree / "torchgen" / name for name in texts)):
        data = path.read_bytes()
        digest.update(f"{path.name}\0{len(data)}\0".encode())
        digest.update(data)
    return digest.hexdigest()[:32]


def _parsed(tree: Path) -> Known:
    functions, derivatives = (str(tree / PACKAGED[file] / file) for file in (FUNCTIONS, DERIVATIVES))
    # torchgen caches the parsed YAML, so load_derivatives does not parse it again.
    parsed = torchgen.parse_native_yaml(functions, _tags_file(tree), torchgen.IGNORED_KEYS)
    infos, keys = torchgen.load_derivatives(derivatives, functions, _tags_file(tree))
    kernels = {key: dict(index.index) for key, index in parsed.backend_indices.items()}
    return Known(list(parsed.native_functions), kernels, dict(infos), set(keys))
