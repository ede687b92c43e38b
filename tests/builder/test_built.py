"""When a build has nothing to do: the note of the last one, its inputs, and whether its result is there."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from asking import asked
from graft import deliveries, stages
from graft.base.installed import Environment
from graft.compile.manifest import Outside
from graft.core import layout as layout_module
from graft.core.cuda_settings import CudaArchs, CudaSettings
from graft.core.errors import MissingError
from graft.core.layout import LOADED, Layout, TorchVersion
from graft.deliver.built import Built, fingerprint_of, load_built, save_built, unchanged
from graft.deliver.develop import remove_trees, use_tree, write_tree
from graft.deliveries import Thin, Tree
from graft.inputs.native import load_native
from graft.options import GRAFT, SOURCE
from graft.session import building
from helpers import Patch, write
from test_installed import fake_torch

SNAPSHOT: Any = SimpleNamespace(stamp="a stamp")


@pytest.fixture
def layout(tmp_path: Path, monkeypatch: Patch) -> Layout:
    """A build whose wheel is there, which read one file elsewhere."""
    monkeypatch.setattr(layout_module, "HOME", tmp_path / "build")
    layout = Layout(TorchVersion("2.13.0"), (tmp_path,), tmp_path / "dist", cuda=CudaSettings(CudaArchs("80")))
    header, wheel = (write(tmp_path, {name: name}) / name for name in ("system.h", "dist/torch.whl"))
    files = {str(header): "141d1f966781e544bdeac92260afd67c"}
    save_built(
        layout, Built("a stamp", wheel, fingerprint_of(wheel), CudaSettings(CudaArchs("80")).note, Outside(files))
    )
    return layout


def test_same_build_has_nothing_to_do(layout: Layout) -> None:
    built = unchanged(layout, SNAPSHOT)
    assert built == load_built(layout) and built and built.path == layout.out / "torch.whl"


CHANGES = {
    "a file of the folder": {"stamp": "another"},
    "CUDA_ARCHS": {"cuda_note": CudaSettings(CudaArchs("90")).note},
    "no CUDA toolkit was found": {"cuda_note": "missing"},
    "a system's header": {"outside": Outside({"/usr/include/gone.h": "0"})},
    "a computed name": {"outside": Outside({}, made="made: 0")},
    "the wheel": {"fingerprint": "another"},
    "the wheel was deleted": {"path": Path("/gone/torch.whl")},
}


@pytest.mark.parametrize("change", CHANGES)
def test_build_with_another_input_is_done_again(layout: Layout, change: str) -> None:
    built = load_built(layout)
    assert built
    save_built(layout, replace(built, **CHANGES[change]))
    assert unchanged(layout, SNAPSHOT) is None


def test_cuda_architectures_count_only_where_cuda_kernels_are(layout: Layout) -> None:
    assert unchanged(replace(layout, cuda=CudaSettings(CudaArchs("90"))), SNAPSHOT) is None
    built = load_built(layout)
    assert built
    save_built(layout, replace(built, cuda_note=""))
    assert unchanged(replace(layout, cuda=CudaSettings(CudaArchs("90"))), SNAPSHOT)


@pytest.mark.parametrize("text", [None, "", "{", "null", "[]", "{}", '{"path": 1}', "\0"])
def test_damaged_note_is_none(layout: Layout, text: str | None) -> None:
    (note,) = layout.work.glob("built-*.json")
    note.unlink() if text is None else note.write_text(text)
    assert load_built(layout) is None and unchanged(layout, SNAPSHOT) is None


def test_next_wheel_replaces_the_last_one(layout: Layout) -> None:
    """But not that of another Python, another kind of build or another output folder."""
    others = (replace(layout, interpreter="cp39"), GRAFT), (replace(layout, out=layout.work), GRAFT), (layout, SOURCE)
    for number, (other, kind) in enumerate(others):
        assert load_built(other, kind) is None
        save_built(other, Built("", write(layout.out, {f"{number}.whl": ""}) / f"{number}.whl", ""), kind)
    wheel = write(layout.out, {"next.whl": ""}) / "next.whl"
    save_built(layout, Built("a stamp", wheel, fingerprint_of(wheel)))
    assert {path.name for path in layout.out.iterdir()} == {"0.whl", "1.whl", "2.whl", "next.whl"}


def test_package_is_done_again_if_one_of_its_files_is_another(layout: Layout) -> None:
    thin = Thin(layout, None, "ops")
    write(thin.layout.out, {"ops/__init__.py": "", "ops/_C.so": "library"})
    before = thin.fingerprint(thin.layout.out)
    assert before == thin.fingerprint(thin.layout.out) != ""
    library = thin.layout.out / "ops/_C.so"
    os.utime(library, (0, 0))
    assert thin.fingerprint(thin.layout.out) != before
    library.unlink()
    (thin.layout.out / "ops/__init__.py").unlink()
    assert thin.fingerprint(thin.layout.out) == ""


def test_delivery_that_was_not_finished_is_done_again(layout: Layout, monkeypatch: Patch) -> None:
    delivered: list[str] = []

    class Package(Thin):
        def deliver(self, *_: object) -> Path:
            write(self.layout.out, {"ops.py": "half"})
            if not delivered:
                delivered.append("half")
                raise KeyboardInterrupt
            delivered.append("whole")
            return self.layout.out

    made, steps = SimpleNamespace(cuda_note="", outside=Outside({})), SimpleNamespace(seconds={"compose": 1.0})
    snapshot = SimpleNamespace(stamp="a stamp", read=SimpleNamespace(folders=()))
    snapshot.toolchain = SimpleNamespace(is_for_edits=False)
    monkeypatch.setattr(deliveries, "take_snapshot", lambda _: snapshot)
    monkeypatch.setattr(deliveries, "job_of", lambda *_: SimpleNamespace(steps=steps, base=None))
    monkeypatch.setattr(stages, "make", lambda *_, **__: made)
    with pytest.raises(KeyboardInterrupt):
        deliveries.run(Package(layout, None, "ops"), asked())
    results = [deliveries.run(Package(layout, None, "ops"), asked()) for _ in range(2)]
    assert delivered == ["half", "whole"]
    assert [bool(each.seconds) for each in results] == [True, False]
    assert {each.path for each in results} == {layout.work / "thin-ops"}


def test_tree_is_done_again_if_it_is_not_in_use_or_torch_is_another(layout: Layout, tmp_path: Path) -> None:
    site = fake_torch(write(tmp_path / "site", {"torchgen/model.py": ""}), "2.10.0")
    environment = Environment("python", site, site)
    delivery = Tree(layout, environment)
    base: Any = SimpleNamespace(cuda="", libraries=site)

    def use(text: bytes) -> Path:
        tree = write_tree(environment, base, [tmp_path], {"torch/a": text})
        use_tree(environment, tree)
        return tree

    first = use(b"1")
    before = delivery.fingerprint(first)
    write(site, {"torch/edited.py": ""})
    assert before and delivery.fingerprint(first) not in ("", before)
    second = use(b"2")
    assert delivery.fingerprint(first) == "" and delivery.fingerprint(second)
    remove_trees(site)
    assert delivery.fingerprint(second) == ""


def test_without_a_compiler_what_was_built_of_the_same_files_is_loaded(
    tmp_path: Path, layout: Layout, monkeypatch: Patch
) -> None:
    def no_compiler(_: Layout) -> None:
        raise MissingError("there is no g++")

    files = {"native_functions.yaml": "", "A.cpp": "// mine\n"}
    hashes = {name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()}
    note = {
        "calls": {},
        "folders": {"ops": hashes},
        "settings": list(load_native(write(tmp_path / "ops", files)).settings.stamp),
    }
    built = write(tmp_path / "built", {"note.json": json.dumps(note)})
    save_built(layout, Built("another stamp", built, fingerprint_of(built)), LOADED)
    monkeypatch.setattr(building, "take_snapshot", no_compiler)
    delivery = SimpleNamespace(layout=layout, kind=LOADED)
    wanted: Any = SimpleNamespace(delivery=delivery, folder=tmp_path / "ops")
    assert building.find(wanted) == built
    write(tmp_path / "ops", {"A.cpp": "// edited\n"})
    with pytest.raises(MissingError, match="there is no g"):
        building.find(wanted)
