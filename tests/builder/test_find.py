"""Which torch is used if PIN is not given. pip itself looks in small indexes on disk, whose wheels are empty. Base
wheels, and what is unpacked of them, are there once for all clones, and never half.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import sys
import traceback
import venv
from collections.abc import Callable
from pathlib import Path

import pytest
from graft.base import fetch as fetching
from graft.base import find
from graft.base.base import Base
from graft.base.fetch import fetch
from graft.base.find import default_release, fetch_unpinned, find_pin, usable_pins
from graft.base.shared import bases, share_tree, share_wheel
from graft.core import layout as layout_module
from graft.core.console import StepLine, Steps
from graft.core.cuda_settings import NO_GPU, CudaArchs
from graft.core.errors import MissingError
from graft.core.files import delete
from graft.core.layout import Layout, TorchVersion
from graft.core.pip import UnavailableError
from graft.inputs.pin import load_pin, pin_of, unpinned_sha256
from helpers import Capture, Patch, make_installable, program, refused, write

CP = f"cp{sys.version_info[0]}{sys.version_info[1]}"
TAG, OTHER_TAG = f"{CP}-{CP}-linux_x86_64", "cp39-cp39-linux_x86_64"


class Sources:
    """Pins, an index of pip's and PyTorch's own index."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.patches = folder / "patches"
        self.usual, self.own = folder / "usual", folder / "own"
        for each in (self.patches, self.usual / "torch", self.own / "torch"):
            each.mkdir(parents=True)
        (self.patches / "indexes.yaml").write_text(f"cpu: {self.own.as_uri()}\n")

    def wheel(self, version: str, index: Path | None = None, sha256: str = "", text: str = "") -> str:
        """Add a wheel to an index, or to none. Return its hash; ``sha256`` is the one that the index claims."""
        path = (index / "torch" if index else self.folder) / f"torch-{version}-{TAG}.whl"
        libraries = {"cpu": "", "python": "\0sm_80 sm_90 sm_100 compute_100\0"}
        members = {f"torch/lib/libtorch_{name}.so": content for name, content in libraries.items()}
        make_installable(path, {**members, "torch/text.py": text})
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if index:
            with (index / "torch/index.html").open("a") as page:
                page.write(f'<a href="{path.name.replace("+", "%2B")}#sha256={sha256 or found}">{path.name}</a>\n')
        return found

    def pin(self, version: str, wheels: dict[str, dict[str, str]]) -> None:
        (self.patches / version).mkdir()
        (self.patches / version / "pin.yaml").write_text(
            f"version: {version}\nsource: {{git: {{commit: ''}}}}\ncompiler: {{gxx: 9, standard: c++17}}\n"
            f"wheels: {wheels}\n"
        )

    def layout(self, version: str) -> Layout:
        return Layout(TorchVersion(version), (), Path(), pin_folder=self.patches / TorchVersion(version).release)

    def fetch(self, version: str) -> Path:
        layout = self.layout(version)
        return fetch(load_pin(layout.patches, layout.pin), layout.base, None, StepLine("fetch"))

    def forget(self) -> None:
        """Delete what was downloaded."""
        for name in ("build", ".cache/graft"):
            shutil.rmtree(self.folder / name)

    def cap(self, monkeypatch: Patch, text: str) -> None:
        """Set a constraint of pip."""
        (self.folder / "constraints.txt").write_text(f"{text}\n")
        monkeypatch.setenv("PIP_CONSTRAINT", str(self.folder / "constraints.txt"))


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: Patch) -> Sources:
    made = Sources(tmp_path)
    monkeypatch.setattr(layout_module, "HOME", tmp_path / "build")
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    variables = {"CONFIG_FILE": os.devnull, "INDEX_URL": made.usual.as_uri(), "RETRIES": "0", "NO_CACHE_DIR": "1"}
    for name, value in variables.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    # No GPU, wherever this runs.
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(find, "find_toolchain", lambda *_: None)
    return made


def gpus(sources: Sources, *capabilities: str) -> None:
    program(sources.folder / "bin/nvidia-smi", "\n".join(f"echo {each}" for each in capabilities))


def found(sources: Sources, capsys: Capture) -> tuple[str, str]:
    """Return the pin, and the last line that was printed about it; an empty one if there is none."""
    pin, _ = find_pin(patches=sources.patches)
    return pin, (capsys.readouterr().err.splitlines() or [""])[-1]


def test_pinned_wheel_for_cpus_comes_first(sources: Sources, capsys: Capture) -> None:
    for_cpus, for_cuda = sources.wheel("9.1.0+cpu", sources.usual), sources.wheel("9.1.0", sources.usual)
    sources.pin("9.1.0", {"9.1.0+cpu": {TAG: for_cpus}, "9.1.0": {TAG: for_cuda}})
    assert found(sources, capsys) == ("9.1.0+cpu", "torch 9.1.0+cpu: the wheel for CPUs")


def test_then_one_of_the_index_of_pytorch(sources: Sources, capsys: Capture) -> None:
    """It is not pinned for this Python, which is told with its hash."""
    sha256 = sources.wheel("9.1.0+cpu", sources.own)
    sources.pin("9.1.0", {"9.1.0+cpu": {OTHER_TAG: "0" * 64}, "9.1.0": {TAG: sources.wheel("9.1.0", sources.usual)}})
    assert find_pin(patches=sources.patches) == ("9.1.0+cpu", "")
    said = capsys.readouterr().err
    assert f"torch-9.1.0+cpu-{TAG}.whl is not pinned: sha256 {sha256}; `make pin TORCH=9.1.0+cpu`" in said


@pytest.mark.parametrize("pinned", [False, True])
def test_wheel_with_another_hash_than_the_index_or_the_pin_has_is_refused(pinned: bool, sources: Sources) -> None:
    sources.wheel("9.1.0+cpu", sources.own, sha256="" if pinned else "0" * 64)
    for_cpus = {"9.1.0+cpu": {TAG: "0" * 64}} if pinned else {}
    sources.pin("9.1.0", {**for_cpus, "9.1.0": {TAG: sources.wheel("9.1.0", sources.usual)}})
    with pytest.raises(MissingError, match=r"pip could not download torch===9\.1\.0\+cpu") as caught:
        find_pin(patches=sources.patches)
    assert "DO NOT MATCH THE HASHES" in caught.value.cause and f"Expected sha256 {'0' * 64}" in caught.value.cause
    assert not list(sources.folder.glob("build/**/*.whl")) and not list(sources.folder.glob(".cache/**/*.whl"))


# GPUs that are here, CUDA_ARCHS, the chosen architectures, and what is said.
GPUS = [
    ([], "", "no-gpu", "no CUDA kernels, since no GPU was found here"),
    (["9.0", "9.0"], "", "90", "CUDA kernels for the GPU here, sm_90"),
    (["8.0", "10.0"], "", "100 80", "CUDA kernels for the GPU here, sm_100, sm_80"),
    (["9.0"], "80", "80", "CUDA_ARCHS=80"),
    (["7.5"], "", "no-gpu", "no CUDA kernels, since this torch does not support the GPU here, sm_75"),
    (["7.5", "9.0"], "", "90", "CUDA kernels for the GPU here, sm_90"),
]


def test_last_comes_the_wheel_for_cuda_with_kernels_for_the_gpu_that_is_here(sources: Sources, capsys: Capture) -> None:
    """The wheel is downloaded once; what is said differs from one GPU to the next."""
    sources.pin("9.1.0", {"9.1.0+cpu": {OTHER_TAG: "0" * 64}, "9.1.0": {TAG: sources.wheel("9.1.0", sources.usual)}})
    for capabilities, given, expected, said in GPUS:
        if capabilities:
            gpus(sources, *capabilities)
        assert find_pin(CudaArchs(given), sources.patches) == ("9.1.0", expected)
        line = capsys.readouterr().err.splitlines()[-1]
        assert line.startswith("torch 9.1.0: the wheel for CUDA, since pip found none for CPUs") and said in line


def test_the_same_is_found_again_without_pip(sources: Sources, capsys: Capture, monkeypatch: Patch) -> None:
    sources.pin("9.1.0", {"9.1.0": {TAG: sources.wheel("9.1.0", sources.usual)}})
    pin, said = found(sources, capsys)
    assert said.startswith("torch 9.1.0: the wheel for CUDA, since pip found none for CPUs")
    sources.wheel("9.1.0+cpu", sources.own)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert find_pin(patches=sources.patches) == (pin, NO_GPU)
    # Why was said already; with a GPU there is more to say.
    assert capsys.readouterr().err == ""
    gpus(sources, "9.0")
    assert found(sources, capsys)[1].endswith("; CUDA kernels for the GPU here, sm_90")
    sources.forget()
    monkeypatch.delenv("PIP_NO_INDEX")
    assert found(sources, capsys)[0] == "9.1.0+cpu"


def test_below_a_cap_of_pip_the_newest_pin_is_taken(sources: Sources, capsys: Capture, monkeypatch: Patch) -> None:
    for version in ("9.0.0", "9.1.0"):
        sources.pin(version, {version: {TAG: sources.wheel(version, sources.usual)}})
    sources.cap(monkeypatch, "torch<=9.0")
    assert found(sources, capsys)[0] == "9.0.0"
    # Found again without pip, though a newer release comes first.
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert found(sources, capsys)[0] == "9.0.0"
    monkeypatch.delenv("PIP_NO_INDEX")
    error = refused(UnavailableError, sources.fetch, "9.1.0", match=r"forbids torch===9.1.0: it allows <=9.0")
    assert "PIP_CONSTRAINT=/dev/null" in error.todo
    # A version below it that does not exist.
    assert error.is_capped and not refused(UnavailableError, sources.fetch, "9.0.0+cpu").is_capped
    sources.cap(monkeypatch, "torch<8")
    sources.forget()
    with pytest.raises(UnavailableError, match=r"it allows <8"):
        find_pin(patches=sources.patches)


@pytest.mark.parametrize(("cap", "expected"), [("===9.1.0", "9.1.0"), ("==9.0.0+cpu", "9.0.0+cpu"), ("==9.*", "9.1.0")])
def test_caps_concern_each_wheel(
    cap: str, expected: str, sources: Sources, capsys: Capture, monkeypatch: Patch
) -> None:
    for version in ("9.1.0", "9.0.0"):
        sources.pin(version, {version: {TAG: sources.wheel(version, sources.usual)}})
    sources.wheel("9.0.0+cpu", sources.own)
    sources.cap(monkeypatch, f"torch{cap}")
    assert found(sources, capsys)[0] == expected


@pytest.mark.parametrize("network", ["none", "empty indexes"])
def test_without_any_the_error_names_what_works_offline(
    network: str, sources: Sources, monkeypatch: Patch, capsys: Capture
) -> None:
    sources.pin("9.1.0", {"9.1.0": {TAG: "0" * 64}})
    if network == "none":
        monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
        monkeypatch.setenv("PIP_RETRIES", "1")
        monkeypatch.setenv("FORCE_COLOR", "1")  # as CI systems do
    with pytest.raises(MissingError, match="pip can download no PyTorch for this Python") as caught:
        find_pin(patches=sources.patches)
    assert "torch===9.1.0+cpu" in caught.value.cause and "torch===9.1.0 " in f"{caught.value.cause} "
    assert "WHEEL" in caught.value.todo and "make develop" in caught.value.todo
    assert "PIP_INDEX_URL" in caught.value.todo and "UV_DEFAULT_INDEX" in caught.value.todo
    said = "no index can be reached" if network == "none" else "not found"
    assert f"looking for torch 9.1.0: {said}\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        *(("UV_INDEX_URL", "{usual}"), ("UV_DEFAULT_INDEX", "{usual}"), ("UV_DEFAULT_INDEX", "mine={usual}")),
        ("UV_FIND_LINKS", "/nowhere,{usual}/torch/index.html"),
        ("PIP_INDEX_URL", "{usual}"),  # comes first
    ],
)
def test_indexes_of_uv_are_those_of_pip(variable: str, value: str, sources: Sources, monkeypatch: Patch) -> None:
    """In an environment that uv made, nobody sets variables of pip."""
    sources.pin("9.1.0", {"9.1.0": {TAG: sources.wheel("9.1.0", sources.usual)}})
    monkeypatch.delenv("PIP_INDEX_URL")
    if variable == "PIP_INDEX_URL":
        for name in ("UV_INDEX_URL", "UV_DEFAULT_INDEX", "UV_FIND_LINKS"):
            monkeypatch.setenv(name, "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_NO_INDEX", "1" if variable == "UV_FIND_LINKS" else "0")
    monkeypatch.setenv(variable, value.format(usual=sources.usual.as_uri()))
    assert sources.fetch("9.1.0").is_file()


def test_environment_without_pip_is_named(sources: Sources, tmp_path: Path, monkeypatch: Patch) -> None:
    """As uv makes them, or where pip was uninstalled."""
    sources.pin("9.1.0", {"9.1.0": {TAG: sources.wheel("9.1.0", sources.usual)}})
    venv.EnvBuilder(symlinks=True).create(tmp_path / "bare")
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bare/bin/python"))
    error = refused(MissingError, sources.fetch, "9.1.0", match=r"pip is not installed for .*/bare/bin/python")
    assert error.todo == "install it there: `uv pip install pip`, or `python -m ensurepip`"


def test_what_a_killed_download_left_is_not_believed(sources: Sources) -> None:
    sha256 = sources.wheel("9.1.0", sources.usual)
    sources.pin("9.1.0", {"9.1.0": {TAG: sha256}})
    base = sources.layout("9.1.0").base
    (base / "download").mkdir(parents=True)
    (base / f"download/torch-9.1.0-{TAG}.whl").write_text("half")
    (base / f"torch-9.1.0-{TAG}.whl").write_text("without the note of its hash")
    kept = sources.fetch("9.1.0")
    assert hashlib.sha256(kept.read_bytes()).hexdigest() == sha256
    assert sorted(path.name for path in base.iterdir()) == [kept.name, "verified.sha256"]


def test_default_is_the_newest_release_with_a_wheel_for_cpus(sources: Sources) -> None:
    here, elsewhere = {TAG: "0" * 64}, {OTHER_TAG: "0" * 64}
    sources.pin("9.0.0", {"9.0.0": here})
    assert default_release(sources.patches) == "9.0.0"
    sources.pin("8.0.0", {"8.0.0+cpu": elsewhere, "8.0.0": here})
    assert default_release(sources.patches) == "8.0.0"
    sources.pin("7.0.0", {"7.0.0+cpu": here})
    assert default_release(sources.patches) == "7.0.0"
    sources.pin("9.9.0", {"9.9.0+cpu": elsewhere})
    assert [pin.version.release for pin in usable_pins(sources.patches)] == ["7.0.0", "8.0.0", "9.0.0"]


def test_hash_of_a_wheel_that_is_not_pinned_is_an_input(sources: Sources) -> None:
    sources.pin("9.1.0", {"9.1.0": {OTHER_TAG: "0" * 64}})
    layout = sources.layout("9.1.0+cpu")
    pin = load_pin(layout.patches, layout.pin)
    assert unpinned_sha256(pin, layout.base) == ""
    first = sources.wheel("9.1.0+cpu", sources.own)
    fetch_unpinned(layout, None)
    assert unpinned_sha256(pin, layout.base) == first
    (sources.own / "torch/index.html").unlink()
    other = sources.wheel("9.1.0+cpu", text="another")
    fetch_unpinned(layout, sources.folder / f"torch-9.1.0+cpu-{TAG}.whl")
    assert unpinned_sha256(pin, layout.base) == other != first
    sources.pin("9.2.0", {"9.2.0+cpu": {TAG: sources.wheel("9.2.0+cpu", sources.usual)}})
    sources.fetch("9.2.0+cpu")
    layout = sources.layout("9.2.0+cpu")
    assert unpinned_sha256(load_pin(layout.patches, layout.pin), layout.base) == ""


VERSION = TorchVersion("9.1.0")

Clone = Callable[[str], Base]


@pytest.fixture
def clone(sources: Sources, monkeypatch: Patch) -> Clone:
    """Gets the base in a clone of this name. The wheel is given to the first clone; there is no index."""
    sources.pin(VERSION, {VERSION: {TAG: sources.wheel(VERSION, text="a module")}})
    monkeypatch.setattr(Base, "require_usable", lambda _: None)
    monkeypatch.setenv("PIP_NO_INDEX", "1")

    def get(name: str) -> Base:
        given = sources.folder / f"torch-{VERSION}-{TAG}.whl" if name == "first" else None
        monkeypatch.setattr(layout_module, "HOME", sources.folder / name)
        layout = Layout(VERSION, (), Path(), pin_folder=sources.patches / VERSION)
        return fetching.get_base(pin_of(layout), layout, given, Steps())

    return get


def test_second_clone_downloads_and_unpacks_nothing(clone: Clone, monkeypatch: Patch, capsys: Capture) -> None:
    first = clone("first")
    said = capsys.readouterr().err
    assert "already downloaded" not in said and "unpack it: 6 files" in said
    clone("first")
    assert "base wheel: already downloaded" in capsys.readouterr().err
    monkeypatch.setattr(fetching, "_extract", lambda *_: pytest.fail("it unpacks"))
    second = clone("second")
    said = capsys.readouterr().err
    assert "base wheel: already downloaded" in said and "unpack it: there already" in said
    assert first.tree != second.tree and first.tree.resolve() == second.tree.resolve()
    assert first.wheel != second.wheel and first.wheel.samefile(second.wheel)
    assert (second.tree / "torch/text.py").read_text() == "a module"
    (sha256,) = (path.name for path in bases().iterdir())
    assert {path.name for path in (bases() / sha256).iterdir()} == {"lock", "tree", first.wheel.name}


def test_search_for_a_torch_needs_no_pip_if_it_is_there(
    clone: Clone,
    sources: Sources,
    monkeypatch: Patch,
    capsys: Capture,
) -> None:
    clone("first")
    monkeypatch.setattr(layout_module, "HOME", sources.folder / "second")
    find.find_pin(patches=sources.patches)
    assert "looking for torch 9.1.0: already downloaded\n" in capsys.readouterr().err


def test_no_file_there_can_be_written_to(clone: Clone) -> None:
    base = clone("first")
    files = [path for path in base.tree.resolve().rglob("*") if path.is_file()]
    assert len(files) == 7
    for path in (base.wheel, *files):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o222, path


def test_what_fails_or_was_killed_is_not_taken_for_a_base(clone: Clone, monkeypatch: Patch) -> None:
    monkeypatch.setattr(Base, "require_usable", lambda _: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        clone("first")
    (folder,) = bases().iterdir()
    assert not (folder / "tree").exists()
    write(folder, {"tree.partial/torch/of_a_killed_build.py": "", "wheel.partial": ""})
    monkeypatch.setattr(Base, "require_usable", lambda _: None)
    tree = clone("first").tree
    assert (tree / "torch/text.py").is_file() and not (tree / "torch/of_a_killed_build.py").exists()


def as_user(act: Callable[[], object]) -> int:
    """Run ``act`` as a user whom permissions bind. Return 0 if it succeeded."""
    if child := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    try:
        if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        act()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def test_owner_needs_no_more_rights(tmp_path: Path, monkeypatch: Patch) -> None:
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o777)
    for folder in (cache, *tmp_path.parents[:3], tmp_path):
        if folder.stat().st_uid == os.geteuid() and folder != Path("/tmp"):
            folder.chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))

    def act() -> None:
        write(cache, {"torch-1.whl": "a wheel"})
        share_wheel(cache / "torch-1.whl", "0")
        tree = share_tree("0", lambda partial: write(partial, {"torch/deep/a.py": ""}))
        with pytest.raises(PermissionError):
            (tree / "torch/deep/a.py").write_text("")
        delete(bases())
        assert not bases().exists()

    assert as_user(act) == 0


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({"GRAFT_HOME": "~/mine"}, "{home}/mine/bases"),
        ({"XDG_CACHE_HOME": "/caches"}, "/caches/graft/bases"),
        ({"XDG_CACHE_HOME": "relative"}, "{home}/.cache/graft/bases"),
        ({}, "{home}/.cache/graft/bases"),
    ],
)
def test_place_of_bases(variables: dict[str, str], expected: str, tmp_path: Path, monkeypatch: Patch) -> None:
    for name in ("GRAFT_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert str(bases()) == expected.format(home=tmp_path)
