"""The modules that the folder's Python files are part of. torch may import some only when it compiles."""

import importlib
import os
from pathlib import Path

import pytest
import torch
from graft.core.layout import native_folders

FOLDERS = [folder / "python" for folder in native_folders(os.environ["GRAFT_NATIVE"])]
FILES = sorted(path.relative_to(folder).with_suffix("") for folder in FOLDERS for path in folder.rglob("*.py"))


if FILES:

    @pytest.mark.parametrize("file", FILES, ids=str)
    def test_module_is_imported(file: Path) -> None:
        if file.parts[0] == "distributed" and not torch.distributed.is_available():
            pytest.skip("this torch is built without torch.distributed")
        importlib.import_module(".".join(["torch", *file.parts]).removesuffix(".__init__"))
