"""Where source trees come from: a git repository, and a Debian mirror, both created by the tests."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from graft.core.console import StepLine
from graft.core.errors import MissingError, UsageError
from graft.core.layout import REPOSITORY
from graft.fork.cache import Cache, cache_of
from graft.fork.debian import configured_mirrors, refuse_missing_packages
from graft.fork.fetch import fetch_tree
from graft.fork.tree import FUNCTIONS_YAML
from graft.inputs.pin import DebianSource, GitSource, Pin, load_pin
from helpers import Patch, git, program, write
from small_tree import commit, repository

needs_dpkg = pytest.mark.skipif(shutil.which("dpkg-source") is None, reason="Debian's tools are not installed")


@pytest.fixture
def upstream(tmp_path: Path, monkeypatch: Patch) -> Path:
    """A repository with a submodule. git rejects submodules in a local folder unless configured otherwise."""
    monkeypatch.setenv("GIT_ALLOW_PROTOCOL", "file")
    third = repository(tmp_path / "third", {"include/third.h": "// third\n"})
    folder = repository(tmp_path / "upstream", {FUNCTIONS_YAML: "- func: add(Tensor self) -> Tensor\n"})
    git(folder, "submodule", "--quiet", "add", str(third), "third_party/third")
    git(folder, "commit", "--quiet", "--message=third")
    git(folder, "tag", "-a", "v1.2.0", "-m", "release")
    commit(folder, {"later": ""})
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache/1.2.0")


def pin_of(source: GitSource | DebianSource) -> Pin:
    return replace(load_pin(REPOSITORY / "patches/2.6.0"), source=source)


def git_pin(upstream: Path) -> Pin:
    return pin_of(GitSource("v1.2.0", git(upstream, "rev-parse", "v1.2.0^{commit}"), str(upstream)))


def fetch(pin: Pin, cache: Cache, given: str = "") -> Path:
    return fetch_tree(pin, cache, given, StepLine("fetch"))


def test_pinned_commit_is_cloned_shallow_with_its_submodules(upstream: Path, cache: Cache) -> None:
    pin = git_pin(upstream)
    assert isinstance(pin.source, GitSource)
    tree = fetch(pin, cache)
    assert tree == cache.tree
    assert git(tree, "rev-parse", "HEAD") == pin.source.commit
    assert git(tree, "rev-parse", "--is-shallow-repository") == "true"
    assert not (tree / "later").exists()
    assert (tree / "third_party/third/include/third.h").read_text() == "// third\n"
    assert git(tree, "status", "--porcelain") == ""
    # An existing tree is not downloaded again.
    shutil.rmtree(upstream)
    assert fetch(pin, cache) == tree


def test_mirror_or_checkout_stands_in(upstream: Path, cache: Cache, tmp_path: Path) -> None:
    pin = pin_of(replace(git_pin(upstream).source, repository="/nowhere"))
    mirror = tmp_path / "mirror.git"
    git(tmp_path, "clone", "--quiet", "--mirror", str(upstream), str(mirror))
    assert fetch(pin, cache, str(mirror)) == cache.tree
    assert fetch(pin, Cache(tmp_path / "unused"), str(upstream)) == upstream
    assert not (tmp_path / "unused").exists()


def test_tag_that_was_moved_is_refused(upstream: Path, cache: Cache) -> None:
    pin = git_pin(upstream)
    assert isinstance(pin.source, GitSource)
    git(upstream, "tag", "--force", "v1.2.0", "main")
    found = git(upstream, "rev-parse", "main")
    with pytest.raises(UsageError, match=f"v1.2.0 is commit {found}, but the pin has {pin.source.commit}"):
        fetch(pin, cache)
    assert not cache.tree.exists()


def test_interrupted_clone_goes_on_where_it_was(upstream: Path, cache: Cache, tmp_path: Path) -> None:
    pin = git_pin(upstream)
    (tmp_path / "third").rename(tmp_path / "away")
    with pytest.raises(MissingError, match=r"git could not fetch v1\.2\.0") as caught:
        fetch(pin, cache)
    assert "The download continues where it stopped" in caught.value.todo
    assert not cache.tree.exists()
    # What a killed git leaves: locks, and half-written files.
    partial = cache.tree.with_name("pytorch.partial")
    (partial / ".git/index.lock").touch()
    (partial / FUNCTIONS_YAML).write_text("- func")
    (tmp_path / "away").rename(tmp_path / "third")
    tree = fetch(pin, cache)
    assert git(tree, "status", "--porcelain") == ""
    assert (tree / "third_party/third/include/third.h").is_file()


@pytest.fixture
def mirror(tmp_path: Path) -> Path:
    """A Debian mirror with one source package."""
    folder = tmp_path / "package"
    files = {
        FUNCTIONS_YAML: "- func: add(Tensor self) -> Tensor\n",
        "debian/source/format": "3.0 (native)\n",
        "debian/control": "Source: pytorch\nMaintainer: Someone <someone@example.com>\n\n"
        "Package: pytorch\nArchitecture: all\nDescription: a test\n",
        "debian/changelog": "pytorch (1.2.0) unstable; urgency=low\n\n  * A test.\n\n"
        " -- Someone <someone@example.com>  Sat, 01 Jan 2000 00:00:00 +0000\n",
    }
    write(folder, files)
    pool = tmp_path / "mirror/pool/main/p/pytorch"
    pool.mkdir(parents=True)
    subprocess.run(["dpkg-source", "--build", folder], cwd=pool, stdout=subprocess.DEVNULL, check=True)
    return tmp_path / "mirror"


def debian_pin(mirror: Path) -> Pin:
    files = sorted((mirror / "pool/main/p/pytorch").iterdir())
    sha256 = {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
    return pin_of(DebianSource("pytorch", "1.2.0", sha256))


@needs_dpkg
def test_source_package_is_fetched_and_unpacked(mirror: Path, cache: Cache) -> None:
    pin = debian_pin(mirror)
    cache.tree.with_name("pytorch.partial").mkdir(parents=True)  # of an interrupted unpacking
    tree = fetch(pin, cache, str(mirror))
    assert (tree / FUNCTIONS_YAML).is_file()
    assert (tree / "debian/changelog").is_file()
    # The files are kept and not downloaded again.
    shutil.rmtree(mirror)
    shutil.rmtree(tree)
    assert fetch(pin, cache, str(mirror)) == tree


@needs_dpkg
def test_file_with_another_hash_is_refused_and_not_kept(mirror: Path, cache: Cache) -> None:
    pin = debian_pin(mirror)
    assert isinstance(pin.source, DebianSource)
    (archive,) = (mirror / "pool/main/p/pytorch").glob("*.tar.*")
    archive.write_bytes(b"another")
    with pytest.raises(MissingError, match=rf"{archive.name}.*sha256 {pin.source.sha256[archive.name]}") as caught:
        fetch(pin, cache, str(mirror))
    assert hashlib.sha256(b"another").hexdigest() in caught.value.cause
    assert not list((cache.folder / "downloads").glob(f"{archive.name}*"))
    assert not cache.tree.exists()


def put_first(path: Path, text: str, monkeypatch: Patch) -> None:
    """Put a shell script before all other programs."""
    monkeypatch.setenv("PATH", f"{program(path, text).parent}{os.pathsep}{os.environ['PATH']}")


def test_mirrors_are_those_of_apt(tmp_path: Path, monkeypatch: Patch) -> None:
    put_first(tmp_path / "bin/apt-get", "echo one://debian/; echo one://debian/; echo two://debian", monkeypatch)
    assert configured_mirrors() == ["one://debian/", "two://debian"]
    put_first(tmp_path / "bin/apt-get", "", monkeypatch)
    with pytest.raises(MissingError, match="no Debian mirror") as caught:
        configured_mirrors()
    assert "apt-get update" in caught.value.todo


def test_missing_packages_are_named_in_a_command(tmp_path: Path, monkeypatch: Patch) -> None:
    answer = "echo installed libone-dev; echo config-files libtwo-dev; echo dpkg-query: no packages found >&2; exit 1"
    put_first(tmp_path / "bin/dpkg-query", answer, monkeypatch)
    with pytest.raises(MissingError, match="2 of the 3 system packages") as caught:
        refuse_missing_packages(["libone-dev", "libtwo-dev", "libthree-dev"])
    assert caught.value.todo == "apt-get install --no-install-recommends libtwo-dev libthree-dev"
    refuse_missing_packages(["libone-dev"])
    monkeypatch.setenv("PATH", str(tmp_path))  # they cannot be looked for without dpkg
    refuse_missing_packages(["libtwo-dev"])


def test_cache_is_where_the_user_has_caches(monkeypatch: Patch, tmp_path: Path) -> None:
    pin = load_pin(REPOSITORY / "patches/2.6.0")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_of(pin).tree == tmp_path / "graft/2.6.0/pytorch"
    for ignored in ("", "relative"):
        monkeypatch.setenv("XDG_CACHE_HOME", ignored)
        assert cache_of(pin).folder == Path.home() / ".cache/graft/2.6.0"
