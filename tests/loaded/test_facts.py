"""Code that was compiled with what an edit changed, for each kind of file: eager and compiled code agree, here and in a
new process, which has the disk caches of this one.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from facts import FOLDERS, SETUP, texts_of
from sessions import Folder, Session

# FunctionsManual.cpp takes long to compile, so CI has one folder with it.
KINDS = [pytest.param(name, marks=pytest.mark.slow if "PyTorch's formulas" in name else ()) for name in FOLDERS]


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_code_follows_each_file(where: Path, kind: str) -> None:
    _, expression, is_slope = FOLDERS[kind]
    folder = Folder(where / kind.replace(" ", "_") / "facts", {})
    found = []
    with Session(where) as session:
        session.run(f"{SETUP}\ndef function(x): return {expression}\nkept = torch.compile(function)")
        for number in (3, 5, 3):
            folder.become(texts_of(kind, number))
            session.load(folder.path)
            expected = session.value(f"shown(function, {is_slope})") if is_slope else [number * 2.0] * 2
            found.append(expected)
            assert session.value(f"shown(kept, {is_slope})") == expected
            with Session(where) as fresh:
                fresh.run(f"{SETUP}\ndef function(x): return {expression}")
                fresh.load(folder.path)
                assert fresh.value(f"shown(torch.compile(function), {is_slope})") == expected
        assert found[0] == found[2] != found[1]
        session.run("graft.unload('facts')")
        if "fact" not in expression:
            stock = session.value(f"shown(function, {is_slope})")
            assert session.value(f"torch.allclose(torch.tensor(shown(kept, {is_slope})), torch.tensor({stock}))")
