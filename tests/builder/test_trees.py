"""What ``make develop`` writes next to an installed torch: a tree of links, a ``.pth`` file, and the code that it runs.

The torch has few files, and Python is started without its ``site``.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from graft.base.installed import TREES, Environment
from graft.core.folders import PLACES, Origin
from graft.core.layout import Layout, TorchVersion
from graft.deliver import develop
from graft.deliver.develop import VARIABLE, current_tree, note_of, use_tree, write_tree
from graft.deliveries import Tree
from helpers import Capture, Patch, files_of, write

# Also cached bytecode of some files, as written by pip.
CACHE = f"__pycache__/{{}}.{sys.implementation.cache_tag}.pyc"
INSTALLED = {
    "torch/__init__.py": "from .version import __version__\n",
    "torch/version.py": "__version__ = '2.10.0'\n",
    "torch/nn/functional.py": "a = 1\n",
    "torch/lib/libtorch.so": "an umbrella",
    "torch/lib/libtorch_cpu.so": "the kernels",
    "torch/lib/libtorch_python.so": "the bindings",
    "torchgen/model.py": "",
    "other/__init__.py": "",
    **{f"torch/{CACHE.format(name)}": f"of {name}" for name in ("__init__", "version")},
}
COMPOSED = {
    "torch/version.py": b"__version__ = '2.10.0+graft'\n",
    "torch/lib/libtorch.so": b"the operators",
    "torch/lib/libtorch_python.so": b"their bindings",
    "torch/nn/added/__init__.py": b"",
    "torch/nn/added/module.py": b"b = 1\n",
    "torch/include/ATen/native/Own.h": b"",
}

# The file that differs with each build.
HASH = "torch/_graft.json"

# Print the path after a `.pth` file was read twice, as in a virtual environment.
RUN_TWICE = """
import os, site, sys
sys.path[:] = ["first", "second"]
for _ in range(2):
    site.addpackage(*os.path.split(sys.argv[1]), set())
print(sys.path)
"""

# Undo develop in a process that uses the tree.
UNDEVELOP = """
import json, site, sys
from pathlib import Path
packages = sys.argv[1]
site.addpackage(packages, "torch_graft.pth", set())
assert "_torch_graft_start" in sys.modules
sys.path += json.loads(sys.argv[2])
from graft.deliver.develop import remove_trees
remove_trees(Path(packages))
"""


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    packages = write(tmp_path / "site-packages", INSTALLED)
    return Environment("/my env/bin/python", packages, packages)


@pytest.fixture
def symbolic(monkeypatch: Patch) -> None:
    """A file system without hard links."""

    def refuse(*_: object) -> None:
        raise OSError(18, "Invalid cross-device link")

    monkeypatch.setattr(os, "link", refuse)


def add(
    environment: Environment,
    files: Mapping[str, bytes] = COMPOSED,
    build: str = "first",
    cuda: str = "",
    natives: Sequence[Path] = (Path("/my ops"),),
) -> Path:
    base: Any = SimpleNamespace(cuda=cuda, libraries=environment.site / "torch/lib")
    tree = write_tree(environment, base, natives, {**files, HASH: build.encode()})
    use_tree(environment, tree)
    return tree


def contents(folder: Path) -> dict[str, bytes]:
    """Return every file by its path, and folders, even empty ones."""
    paths = (path for path in folder.rglob("*") if "__pycache__" not in path.parts)
    return {str(path.relative_to(folder)): path.read_bytes() if path.is_file() else b"" for path in paths}


def status(folder: Path) -> dict[str, tuple[bytes, int, int]]:
    """Return everything that could change about files, except for the number of links."""
    paths = [path for path in sorted(folder.rglob("*")) if TREES not in path.parts and path.suffix != ".pth"]
    statuses = {path: path.lstat() for path in paths}
    return {
        str(path.relative_to(folder)): (path.read_bytes() if path.is_file() else b"", each.st_mtime_ns, each.st_mode)
        for path, each in statuses.items()
    }


def own_files(tree: Path, environment: Environment) -> set[str]:
    """The files of a tree that are not links to those of the environment."""
    theirs = {name: environment.site / name for name in files_of(tree)}
    return {name for name, path in theirs.items() if not (path.is_file() and (tree / name).samefile(path))}


def build_of(environment: Environment) -> str:
    """Which build the current tree is of; empty if there is none."""
    tree = current_tree(environment.packages)
    return (tree / HASH).read_text() if tree else ""


OWN = {*COMPOSED, HASH, "graft.json", "_torch_graft_start.py"}


def test_only_composed_files_are_its_own(environment: Environment) -> None:
    """Bytecode of composed files is not taken from torch."""
    before = status(environment.site)
    tree = add(environment)
    assert own_files(tree, environment) == OWN
    assert {name: (tree / name).read_bytes() for name in COMPOSED} == COMPOSED
    installed = {name for name in INSTALLED if name.startswith(("torch/", "torchgen/"))}
    assert {*files_of(tree)} == OWN | installed - {*COMPOSED, f"torch/{CACHE.format('version')}"}
    assert caches(tree) == {f"torch/{CACHE.format('__init__')}": "of __init__"}
    assert not any(path.is_symlink() for path in tree.rglob("*"))
    assert status(environment.site) == before
    assert (build_of(environment), note_of(tree)["base"]) == ("first", environment.content)


def test_edited_file_of_the_installed_torch_is_in_the_next_tree(environment: Environment) -> None:
    """Editors rename a new file over the old one, which the links still show."""
    old = add(environment)
    write(environment.site, {"saved": "a = 22\n"})
    (environment.site / "saved").rename(environment.site / "torch/nn/functional.py")
    tree = add(environment)
    assert tree != old
    assert (tree / "torch/nn/functional.py").read_text() == "a = 22\n"


@pytest.mark.usefixtures("symbolic")
def test_links_are_symbolic_where_hard_ones_are_refused(environment: Environment) -> None:
    before = status(environment.site)
    tree = add(environment)
    assert own_files(tree, environment) == OWN
    links = {path.relative_to(tree).as_posix(): path.readlink() for path in tree.rglob("*") if path.is_symlink()}
    assert links["torch/__init__.py"] == Path("../../../torch/__init__.py")
    assert not OWN & {*links}
    tree = third_tree(environment, CHANGED)
    assert own_files(tree, environment) == {*CHANGED, *OWN - {*COMPOSED}}
    assert status(environment.site) == before


CHANGED = {
    "torch/version.py": COMPOSED["torch/version.py"],
    "torch/nn/functional.py": b"a = 2\n",
    "torch/lib/libtorch_python.so": b"other bindings",
}


def third_tree(environment: Environment, files: Mapping[str, bytes]) -> Path:
    """The tree that the first one's files are moved to; the second one is then current."""
    (first,) = (environment.packages / TREES).iterdir()
    inode = (first / "torch/version.py").stat().st_ino
    second = add(environment, COMPOSED, "second")
    assert {*(environment.packages / TREES).iterdir()} == {first, second}
    third = add(environment, files, "third")
    assert {*(environment.packages / TREES).iterdir()} == {second, third}
    assert (third / "torch/version.py").stat().st_ino == inode, "it was made anew"
    return third


def import_all(tree: Path) -> None:
    """Write bytecode next to each source, like imports."""
    for path in [*tree.rglob("*.py")]:
        cached = path.parent / CACHE.format(path.stem)
        cached.parent.mkdir(exist_ok=True)
        cached.with_suffix(".new").write_text(f"import of {path.stem}")
        cached.with_suffix(".new").replace(cached)


def caches(tree: Path) -> dict[str, str]:
    found = {path.relative_to(tree).as_posix(): path.read_text() for path in tree.rglob("*.pyc")}
    return {name: text for name, text in found.items() if name.startswith("torch/")}


def test_tree_that_takes_over_a_spare_one_is_as_a_fresh_one(environment: Environment) -> None:
    """Also if files are no longer composed: torch's own are restored, and new ones and their folders deleted."""
    before = status(environment.site)
    import_all(add(environment))
    tree = third_tree(environment, CHANGED)
    assert build_of(environment) == "third"
    # Bytecode of unchanged sources is kept.
    assert caches(tree) == {f"torch/{CACHE.format(name)}": f"import of {name}" for name in ("__init__", "version")}
    taken_over = contents(tree)
    shutil.rmtree(environment.packages / TREES)
    assert add(environment, CHANGED, "third") == tree
    assert contents(tree) == taken_over
    assert own_files(tree, environment) == {*CHANGED, *OWN - {*COMPOSED}}
    assert status(environment.site) == before


def test_tree_of_another_torch_is_not_taken_over(environment: Environment) -> None:
    for build in ("first", "second"):
        add(environment, COMPOSED, build)
    write(environment.site, {"torch/lib/libtorch_cpu.so": "other kernels", "torch/new.py": ""})
    tree = add(environment, COMPOSED, "third")
    assert (tree / "torch/lib/libtorch_cpu.so").read_text() == "other kernels"
    assert (tree / "torch/new.py").is_file()
    assert own_files(tree, environment) == OWN


def test_same_input_makes_no_other_tree(environment: Environment) -> None:
    tree = add(environment)
    inode = tree.stat().st_ino
    add(environment, CHANGED, "between")
    assert add(environment) == tree
    assert tree.stat().st_ino == inode
    assert build_of(environment) == "first"


def test_folder_or_checkout_that_another_takes_the_place_of_is_told(
    environment: Environment, capsys: Capture, tmp_path: Path
) -> None:
    """Of two checkouts, only one can be built at a time."""
    first, second = Path("/my ops"), Path("/other")
    folders = [str(first), str(second)]
    one, two = (write(tmp_path / name, {PLACES: Origin(f"/{name}", "SOURCE").text}) for name in ("one", "two"))
    for number, (natives, told) in enumerate(
        [
            ([first], ""),
            ([first], ""),
            ([second], f"{first} are no longer there; NATIVE={shlex.quote(shlex.join(folders))} adds all of them"),
            ([second, first], ""),
            ([one], None),
            ([two], "/one are no longer there"),
            ([Path("/my_ops")], "/two are no longer there; SOURCE=/two NATIVE=/my_ops adds all of them"),
        ]
    ):
        add(environment, COMPOSED, f"build {number}", natives=natives)
        said = capsys.readouterr().err
        assert told is None or said == (told and f"the operators of {told}\n")


def test_what_a_killed_build_left_is_no_tree(environment: Environment) -> None:
    """Killed while changing a spare tree, and while filling another."""
    for build in ("first", "second"):
        tree = add(environment, COMPOSED, build)
    (spare,) = (path for path in tree.parent.iterdir() if path != tree)
    (spare / "torch/nn/functional.py").unlink()
    spare.rename(spare.with_name("0123.partial"))
    write(environment.packages / TREES / "4567.partial", {"torch/__init__.py": ""})
    assert build_of(environment) == "second"
    third = add(environment, COMPOSED, "third")
    assert {*tree.parent.iterdir()} == {tree, third}
    assert own_files(third, environment) == OWN


def test_libraries_of_cuda_are_found_beside_torch(environment: Environment, monkeypatch: Patch) -> None:
    write(environment.site, {"nvidia/cu13/lib/libcudart.so.13": ""})
    monkeypatch.setattr(develop, "_siblings", lambda _: {"nvidia", "missing"})
    tree = add(environment, cuda="13.0")
    assert (tree / "nvidia").readlink() == Path("../../nvidia")
    assert not (tree / "missing").is_symlink()


@contextmanager
def running(
    environment: Environment, *flags: str, imported: str = "torch", **variables: str
) -> Iterator[subprocess.Popen[str]]:
    """A process that prints the path of a module that it imports, and runs until the body ends."""
    program = f"""
import os, site, sys
sys.path[:] = [{str(environment.site)!r}, *sys.path]
site.addpackage({str(environment.packages)!r}, "torch_graft.pth", set())
import {imported}
print({imported}.__file__, os.environ.get({VARIABLE!r}, ""), flush=True)
input()
"""
    command, env = [sys.executable, *flags, "-S", "-B", "-c", program], {**os.environ, **variables}
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    with subprocess.Popen(command, env=env, cwd=environment.packages, text=True, **pipes) as process:  # type: ignore[call-overload]
        yield process


def ran(environment: Environment, *flags: str, named: str | None = None) -> tuple[str, str]:
    """What a process prints, which is started with the name of a tree in its environment, and its messages."""
    with running(environment, *flags, **({} if named is None else {VARIABLE: named})) as process:
        out, said = process.communicate("\n")
        return out, said


def with_tree(tree: Path) -> str:
    """What a process prints that uses a tree."""
    return f"{tree}/torch/__init__.py {tree.name}\n"


def test_child_has_the_tree_of_its_parent(environment: Environment) -> None:
    """Also of a parent that was started before another build. If it ignores variables, it has the current tree, and
    says so.
    """
    first = add(environment)
    with running(environment) as parent:
        assert parent.stdout and parent.stdout.readline() == with_tree(first)
        second = add(environment, CHANGED, "second")
        for named, expected in (first.name, first), ("deleted", second), ("", second):
            assert ran(environment, named=named) == (with_tree(expected), "")
        for flag in ("-I", "-E"):
            out, said = ran(environment, flag, named=first.name)
            assert out == with_tree(second)
            assert said.startswith(f"torch: python {flag} ignores {VARIABLE}: ") and said.count("\n") == 1
            assert ran(environment, flag, named=second.name) == (with_tree(second), "")
        parent.communicate("\n")


def test_undevelop_does_not_count_itself(environment: Environment) -> None:
    """The command's Python may be the environment's, whose start locks the tree. A process beside it counts."""
    tree, given = add(environment), (UNDEVELOP, environment.packages, json.dumps(sys.path))
    with running(environment) as other:
        assert other.stdout and other.stdout.readline() == with_tree(tree)
        assert "processes still run with what is there" in run_bare(*given).stderr and tree.is_dir()
        other.communicate("\n")
    add(environment)
    assert run_bare(*given).stderr == ""
    assert not tree.parent.exists() and not [*environment.packages.glob("*.pth")]


@pytest.mark.parametrize("flags", [(), ("-I",), ("-E",)])
def test_variable_names_a_tree_of_the_environment_and_nothing_else(
    environment: Environment, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    tree = add(environment)
    texts = {"_torch_graft_start.py": "raise SystemExit('evil')\n", "torch/__init__.py": ""}
    write(tmp_path / "evil", texts)
    write(tree.parent / "1234.partial", texts)
    (tmp_path / "torch.graft").mkdir()
    for name in (str(tmp_path / "evil"), "../../evil", f"{tree.name}/../../../evil", "..", ".", "1234.partial", "\n"):
        assert ran(environment, *flags, named=name) == (with_tree(tree), ""), name


def test_session_with_the_old_build_is_told_to_restart(
    environment: Environment, tmp_path: Path, monkeypatch: Patch, capsys: Capture
) -> None:
    """As a notebook that imported torch and runs `make develop`."""
    delivery = Tree(Layout(TorchVersion("2.10.0"), (Path("/my ops"),), tmp_path), environment)
    said = "  this session still uses the old build; restart it\n"
    monkeypatch.delenv(VARIABLE, raising=False)
    delivery.announce(tmp_path, 1.0)
    assert said not in capsys.readouterr().err
    monkeypatch.setenv(VARIABLE, "tree")
    delivery.announce(tmp_path, 1.0)
    assert capsys.readouterr().err.endswith(said)


def run_bare(program: str, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run Python without its site, and so without any environment's packages."""
    command = [sys.executable, "-I", "-S", "-B", "-c", program, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True)


def test_path_has_the_tree_once_if_it_is_there(environment: Environment) -> None:
    tree = add(environment)
    (pth,) = environment.packages.glob("*.pth")
    assert str(environment.packages) not in pth.read_text()
    assert len(pth.read_text().splitlines()) == 1
    assert run_bare(RUN_TWICE, pth).stdout == f"{[str(tree), 'first', 'second']}\n"
    shutil.rmtree(tree)
    assert build_of(environment) == ""
    done = run_bare(RUN_TWICE, pth)
    assert (done.stdout, done.stderr) == ("['first', 'second']\n", "")


def test_what_pythonpath_names_stays_before_the_tree(environment: Environment) -> None:
    tree = add(environment)
    program = """
import sys
sys.path[:] = [sys.argv[1], "of PYTHONPATH", "library", sys.argv[2], *sys.path]
import _torch_graft_start
print(sys.path[:4])
"""
    done = run_bare(program, tree, environment.site)
    assert done.stdout == f"{['of PYTHONPATH', 'library', str(tree), str(environment.site)]}\n"


def installed_one(environment: Environment) -> str:
    """What a process prints that uses the installed torch."""
    return f"{environment.site}/torch/__init__.py \n"


@pytest.mark.parametrize("name", ["torch/version.py", "torch/lib/libtorch_cpu.so", "torch/lib/libtorch_python.so"])
def test_torch_that_changed_is_the_installed_one(environment: Environment, name: str) -> None:
    add(environment)
    (environment.site / name).unlink()
    write(environment.site, {name: "__version__ = 'another'\n"})
    out, said = ran(environment)
    assert out == installed_one(environment)
    assert said.startswith(f"torch: another torch was installed in {environment.site}, ") and said.count("\n") == 1
    assert shlex.split(said)[-2:] == ["NATIVE='/my ops'", f"PYTHON={sys.executable}"]
    with running(environment, imported="json") as process:  # nothing is said before torch is imported
        assert process.communicate("\n")[1] == ""


@pytest.mark.usefixtures("symbolic")
def test_symbolic_links_do_not_outlive_torch(environment: Environment) -> None:
    """As hard ones do; what is left of torch is searched for elsewhere, and not found."""
    tree = add(environment)
    assert ran(environment) == (with_tree(tree), "")
    shutil.rmtree(environment.site / "torch")
    out, said = ran(environment)
    assert not out.startswith(str(environment.site))
    assert said.startswith(f"torch: it was uninstalled from {environment.site}; ")


RECORD = "torch-2.10.0.dist-info/RECORD"


@pytest.mark.parametrize("linked", ["hard", "symbolic"])
def test_copied_environment_uses_its_own_tree(
    environment: Environment, linked: str, request: pytest.FixtureRequest
) -> None:
    if linked == "symbolic":
        request.getfixturevalue("symbolic")
    packages = environment.packages.with_name("copied-packages")
    other, tree = Environment("python", packages, packages), packages / TREES / add(environment).name
    subprocess.run(["cp", "-a", environment.packages, packages], check=True)
    shutil.rmtree(environment.packages)
    assert ran(other) == (with_tree(tree), "")
    assert (tree / "torch/nn/functional.py").read_text() == "a = 1\n"
    assert build_of(other) == "first"


def test_torch_is_known_by_its_content(environment: Environment) -> None:
    write(environment.site, {RECORD: "torch/version.py,sha256=one,20\nother/__init__.py,sha256=x,0\n"})
    tree = add(environment)
    for path in environment.site.rglob("*.*"):  # container images keep no fractions of a second
        os.utime(path, (int(path.stat().st_mtime), int(path.stat().st_mtime)))
    assert ran(environment) == (with_tree(tree), "")
    # pip notes that the user asked for it.
    write(environment.site, {RECORD: "other/__init__.py,sha256=y,0\ntorch/version.py,sha256=one,20\n"})
    assert ran(environment) == (with_tree(tree), "")
    write(environment.site, {RECORD: "torch/version.py,sha256=two,20\n"})
    out, said = ran(environment)
    assert out == installed_one(environment) and "another torch was installed" in said
    tree = add(environment, build="again")
    assert ran(environment) == (with_tree(tree), "")
    # A library that was replaced is another torch, too, though pip does not know.
    (environment.site / "torch/lib/libtorch_cpu.so").unlink()
    write(environment.site, {"torch/lib/libtorch_cpu.so": "The kernels"})
    assert ran(environment)[0] == installed_one(environment)


def test_path_of_libraries_that_would_load_another_torch_is_named(environment: Environment, monkeypatch: Patch) -> None:
    tree, folder = add(environment), environment.site / "torch/lib"
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{folder}")
    out, said = ran(environment)
    assert out == with_tree(tree) and said.count("\n") == 1
    assert said.startswith(f"torch: LD_LIBRARY_PATH names {folder}, ")
    assert said.endswith("take that folder out of it\n")
