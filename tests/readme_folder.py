"""``python tests/readme_folder.py FOLDER``: write the native folder that the README shows, file by file."""

from __future__ import annotations

import re
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
_FILE = re.compile(r"^`~/my_ops/(\S+)` [^\n]*:\n\n```\w+\n(.*?)^```$", re.M | re.S)


def main() -> None:
    folder = Path(sys.argv[1])
    files = _FILE.findall(README.read_text())
    assert len(files) == 4, (
        "the README is to show native_functions.yaml, derivatives.yaml, a kernel and a decomposition"
    )
    for name, text in files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


if __name__ == "__main__":
    main()
