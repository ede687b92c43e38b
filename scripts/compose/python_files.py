"""Text behind that of torch's own Python files, and files beside them.

A native folder's ``python/`` mirrors the ``torch`` package: a file that torch has not is added, one that torch has goes
behind torch's text. What the generator derives for such files (docstrings, public names) comes before that. What every
wheel gets, in ``installed/``, comes last, since it looks at what is there.
"""

from __future__ import annotations

from pathlib import Path

from ..common.files import files_below
from ..inputs.merge import MARK
from ..inputs.native import PYTHON, NativeFolder
from .overlay import Overlay

# Where the generator leaves the texts, below the folder that it writes into.
GENERATED = Path("behind")

_INSTALLED = Path(__file__).resolve().parent / "appended"
_SAMPLES = Path("testing/_internal/added_samples.py")


def additions(native: NativeFolder, generated: Path) -> dict[str, str]:
    """The texts that are added, by the path of their file in the wheel.

    Args:
        native: the native folder.
        generated: the folder that the generator wrote into.
    """
    behind = generated / GENERATED
    texts = {name.as_posix(): (behind / name).read_text() for name in files_below(behind)} if behind.is_dir() else {}
    more = [(file.relative_to(PYTHON), native.path / file) for file in native.python]
    more += [(_SAMPLES, native.path / native.samples)] if native.samples else []
    more += [(file, _INSTALLED / file) for file in files_below(_INSTALLED) if file.suffix == ".py"]
    for file, path in more:
        name = (Path("torch") / file).as_posix()
        texts[name] = f"{texts[name]}\n{path.read_text()}" if name in texts else path.read_text()
    return texts


def behind_upstream(upstream: str | None, addition: str) -> str:
    """The text of a file: ``addition`` alone, or behind what upstream has there."""
    return addition if upstream is None else f"{upstream}{MARK}{addition}"


def add_python(native: NativeFolder, generated: Path, overlay: Overlay) -> None:
    """Write every file that gains something into ``overlay``."""
    for name, addition in additions(native, generated).items():
        there = Path(name) in overlay.names or (overlay.base / name).is_file()
        overlay.write(name, behind_upstream(overlay.read(name) if there else None, addition))
