"""``python tests/readme_folder.py FOLDER``: write the native folder that the README shows."""

import sys
from pathlib import Path

from shared.snippets import write_shown_folder

if __name__ == "__main__":
    write_shown_folder(Path(sys.argv[1]))
