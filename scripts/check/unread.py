"""Files that look as if they were part of the folder, and that no build reads."""

from __future__ import annotations

import difflib
from pathlib import Path

from ..inputs.native import AUTOCAST, DERIVATIVES, FUNCTIONS, PYTHON, SAMPLES
from .finding import Findings

# What others call C++ sources; PyTorch's CMake files glob *.cpp.
_OTHER_CPLUSPLUS = (".cc", ".cxx", ".c++", ".C", ".c")
_YAML = (FUNCTIONS, DERIVATIVES, AUTOCAST)


def check_unread(native: Path, findings: Findings) -> None:
    """Check the names of what lies beside the files that a build reads."""
    for path in sorted(native.rglob("*")):
        name = path.relative_to(native)
        if not path.is_file() or name.parts[0] in ("tests", PYTHON.name) or any(p.startswith(".") for p in name.parts):
            continue
        place = (path, 1, 0)
        if path.suffix in _OTHER_CPLUSPLUS:
            findings.add(place, f"PyTorch's build compiles no {path.suffix} files", f"name it {path.stem}.cpp")
        elif path.suffix in (".yaml", ".yml") and name not in _YAML:
            what = f"nothing reads this file: the folder's YAML files are {', '.join(map(str, _YAML))}"
            findings.add(place, what, _named_for(path))
        elif name.parent == Path() and path.suffix == ".py" and name != SAMPLES:
            what = f"nothing reads this file: Python files lie below {PYTHON}/ and tests/, except {SAMPLES}"
            findings.add(place, what, "move it there, or delete it", is_warning=True)


def _named_for(path: Path) -> str:
    """What to do with a YAML file of another name."""
    close = difflib.get_close_matches(path.stem, [name.stem for name in _YAML], n=1, cutoff=0.5)
    return f"name it {close[0]}.yaml" if close else "move what it says there, or delete it"
