"""What a working tree changes, as git's files and the folder tell it. Nothing is written, fetched or run."""

from __future__ import annotations

import contextlib
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from graft.checkout.repository import Repository, open_repository
from graft.core.errors import UsageError
from helpers import Patch, git, program, write
from small_tree import TEXT, commit, everything
from small_tree import repository as repository_of

ADD = "aten/src/ATen/native/Add.cpp"
PYTHON = "torch/text.py"
FUNCTIONS = "aten/src/ATen/native/native_functions.yaml"


@pytest.fixture
def cloned(tmp_path: Path, tree: Path) -> Path:
    """An empty folder beside a remote that answers any question, and has one commit more than its first."""
    git(tree, "config", "uploadpack.allowFilter", "true")
    git(tree, "config", "uploadpack.allowAnySHA1InWant", "true")
    commit(tree, {ADD: "// second\n", PYTHON: "second = 1\n"})
    return tmp_path / "clone"


def clone(tree: Path, into: Path, *words: str) -> Repository:
    git(tree, "clone", "--quiet", *words, f"file://{tree}", str(into))
    return Repository(into)


def read_all(repository: Repository, base: str) -> None:
    """Ask everything, as far as it can be answered."""
    for ask in (
        lambda: repository.changed(base),
        lambda: repository.changed(repository.head()),
        lambda: repository.texts(base, [ADD, PYTHON, "torch/missing.py"]),
        lambda: repository.differing(base, repository.head()),
        repository.state,
        lambda: repository.has("1" * 40),
        lambda: repository.merge_base(base, "HEAD"),
        lambda: repository.is_ancestor(base, "HEAD"),
        lambda: open_repository(repository.path),
        lambda: repository.fetch_line(base),
    ):
        with contextlib.suppress(UsageError):
            ask()


def type_line(error: pytest.ExceptionInfo[UsageError]) -> None:
    """Do what an error says."""
    assert shlex.split(error.value.todo)[0] == "git"
    subprocess.run(error.value.todo, shell=True, check=True, stdout=subprocess.DEVNULL)


def test_all_kinds_of_changes_count(tree: Path) -> None:
    base = git(tree, "rev-parse", "HEAD")
    commit(tree, {"torch/committed.py": "", "torch/untouched.py": "committed\n", "torch/again.py": "1\n"})
    write(tree, {"torch/staged.py": "", "version.txt": "1.3.0a0\n", "torch/again.py": "2\n"})
    git(tree, "add", "--all")
    write(tree, {ADD: "// edited\n", "torch/new folder/é.py": "", "build/ignored.cpp": "", "x/.git/HEAD": ""})
    git(tree, "rm", "--quiet", "torchgen/gen.py")
    (tree / "torch/stub.pyi.in").unlink()
    assert open_repository(tree).changed(base) == {
        ADD: "M",
        "torch/again.py": "A",
        "torch/committed.py": "A",
        "torch/new folder/é.py": "A",
        "torch/staged.py": "A",
        "torch/stub.pyi.in": "D",
        "torch/untouched.py": "M",
        "torchgen/gen.py": "D",
        "version.txt": "M",
    }


def test_same_contents_do_not_count(tree: Path) -> None:
    base = git(tree, "rev-parse", "HEAD")
    os.utime(tree / ADD, (1, 1))
    (tree / PYTHON).chmod(0o755)
    write(tree, {"torch/untouched.py": "staged\n"})
    git(tree, "add", "--all")
    write(tree, {"torch/untouched.py": "pass\n"})  # back again
    git(tree, "rm", "--quiet", "--cached", "version.txt")  # not tracked, but there
    (tree / "torch/gone.py").touch()
    git(tree, "add", "torch/gone.py")
    (tree / "torch/gone.py").unlink()
    assert Repository(tree).changed(base) == {}


def test_line_ends_that_git_converts_do_not_count(tree: Path) -> None:
    commit(tree, {".gitattributes": "*.bat eol=crlf\n", "x.bat": "a\nb\n"})
    (tree / "x.bat").unlink()
    git(tree, "checkout", "x.bat")
    assert (tree / "x.bat").read_bytes() == b"a\r\nb\r\n"
    os.utime(tree / "x.bat", (1, 1))
    assert Repository(tree).changed("HEAD") == {}


def test_links_and_folders_in_place_of_files(tree: Path) -> None:
    (tree / "torch/link.py").symlink_to("text.py")
    (tree / "torch/other.py").symlink_to("text.py")
    git(tree, "add", "--all")
    base = commit(tree, {})
    os.utime(tree / "torch/link.py", (1, 1), follow_symlinks=False)
    assert Repository(tree).changed(base) == {}
    (tree / "torch/link.py").unlink()
    (tree / "torch/link.py").symlink_to("untouched.py")
    (tree / "torch/other.py").unlink()
    (tree / "torch/other.py").symlink_to(".")
    (tree / PYTHON).unlink()
    write(tree, {f"{PYTHON}/inside.py": ""})
    links = {"torch/link.py": "M", "torch/other.py": "M"}
    assert Repository(tree).changed(base) == {PYTHON: "D", f"{PYTHON}/inside.py": "A", **links}


def test_merge_conflict(tree: Path) -> None:
    base = git(tree, "rev-parse", "HEAD")
    git(tree, "checkout", "--quiet", "-b", "other")
    other = commit(tree, {ADD: "// other\n", "torch/both.py": "1\n"})
    git(tree, "checkout", "--quiet", "main")
    commit(tree, {ADD: "// main\n", "torch/both.py": "2\n"})
    with pytest.raises(subprocess.CalledProcessError):
        git(tree, "merge", other)
    assert "<<<<<<<" in (tree / ADD).read_text()
    assert Repository(tree).changed(base) == {ADD: "M", "torch/both.py": "A"}


def test_submodules(tmp_path: Path, tree: Path) -> None:
    inner = repository_of(tmp_path / "inner", {"a.c": "1\n"})
    for name in ("clean", "edited", "moved", "new", "unused"):
        git(tree, "submodule", "--quiet", "add", str(inner), f"third_party/{name}")
    base = commit(tree, {".gitmodules": (tree / ".gitmodules").read_text() + "ignore = all\n"})
    git(tree, "submodule", "--quiet", "deinit", "third_party/unused")
    for name in ("clean", "edited"):
        os.utime(tree / f"third_party/{name}/a.c", (1, 1))
        write(tree, {f"third_party/{name}/built.o": ""})
    repository = Repository(tree)
    assert repository.changed(base) == {}
    write(tree, {"third_party/edited/a.c": "2\n"})
    git(tree / "third_party/moved", "commit", "--quiet", "--allow-empty", "-m", "second")
    assert repository.changed(base) == {"third_party/edited": "S", "third_party/moved": "S"}
    git(tree, "submodule", "--quiet", "add", str(inner), "third_party/added")
    changed = {".gitmodules": "M", **{f"third_party/{name}": "S" for name in ("added", "edited", "moved")}}
    assert repository.changed(base) == changed


def test_worktree(tmp_path: Path, tree: Path) -> None:
    git(tree, "worktree", "add", "--quiet", str(tmp_path / "second"))
    write(tree, {ADD: "// of the first\n"})
    write(tmp_path / "second", {PYTHON: "of the second\n"})
    repository = open_repository(tmp_path / "second/torch")
    assert repository.path == tmp_path / "second"
    assert repository.changed("HEAD") == {PYTHON: "M"}


def test_state_follows_what_counts(tree: Path) -> None:
    repository = Repository(tree)
    states = [repository.state()]

    def differs() -> bool:
        states.append(repository.state())
        return states[-1] != states[-2]

    write(tree, {ADD: "// edited\n"})
    assert differs()
    write(tree, {ADD: "// EDITED\n"})
    assert differs()
    git(tree, "status")
    write(tree, {"build/ignored.cpp": ""})
    assert not differs()
    git(tree, "stash")
    assert differs()
    assert states[-1] == states[0]
    git(tree, "stash", "pop")
    assert differs()
    write(tree, {"torch/new.py": ""})
    assert differs()
    commit(tree, {})
    assert differs()
    git(tree, "checkout", "--quiet", "HEAD~1")
    assert differs()
    assert states[-1] == states[0]


def test_texts(tree: Path) -> None:
    base = git(tree, "rev-parse", "HEAD")
    (tree / "torch/bytes.py").write_bytes(b"\xff missing\n\r\n\0")
    commit(tree, {"torch/two words.py": "", ADD: "// second\n"})
    repository = Repository(tree)
    names = [ADD, "torch/bytes.py", "torch/two words.py", "torch", "torch/missing.py", "with\nnewline", PYTHON]
    second = [b"// second\n", b"\xff missing\n\r\n\0", b"", None, None, None, TEXT.encode()]
    assert repository.texts("HEAD", names) == dict(zip(names, second, strict=True))
    assert repository.texts(base, names) == dict.fromkeys(names) | {ADD: b"// add\n", PYTHON: TEXT.encode()}
    assert repository.texts(base, []) == {}


def test_history(tree: Path) -> None:
    first = git(tree, "rev-parse", "HEAD")
    second = commit(tree, {ADD: "// second\n"})
    git(tree, "checkout", "--quiet", "--detach", first)
    third = commit(tree, {PYTHON: "third\n"})
    git(tree, "checkout", "--quiet", "--orphan", "other")
    other = commit(tree, {})
    repository = Repository(tree)
    assert repository.head() == other
    assert repository.merge_base(second, third) == first
    assert repository.merge_base(second, other) == ""
    assert repository.is_ancestor(first, second) and not repository.is_ancestor(third, second)
    assert repository.differing(second, third) == {ADD, PYTHON}


def test_sparse_checkout_that_leaves_out_a_changed_file(tree: Path) -> None:
    base = git(tree, "rev-parse", "HEAD")
    commit(tree, {"torchgen/gen.py": "changed\n"})
    git(tree, "sparse-checkout", "set", "aten", "tools")
    assert not (tree / "torchgen").exists()
    repository = Repository(tree)
    assert repository.changed("HEAD") == {}
    with pytest.raises(UsageError, match=r"torchgen/gen\.py: the branch changes it, but a sparse checkout") as error:
        repository.changed(base)
    type_line(error)
    assert repository.changed(base) == {"torchgen/gen.py": "M"}


def test_what_is_no_checkout(tmp_path: Path, tree: Path) -> None:
    with pytest.raises(UsageError, match="not a PyTorch source tree"):
        open_repository(tmp_path)
    shutil.rmtree(tree / ".git")
    with pytest.raises(UsageError, match="no git repository with a commit"):
        open_repository(tree)
    git(tree, "init", "--quiet")
    with pytest.raises(UsageError, match="no git repository with a commit"):
        open_repository(tree)


def test_callers_variables_do_not_count(tmp_path: Path, tree: Path, monkeypatch: Patch) -> None:
    """As in a git hook of another repository, or below ``git -c``."""
    settings = {"GIT_DIR": str(tmp_path), "GIT_INDEX_FILE": str(tmp_path / "index"), "GIT_CONFIG_COUNT": "1"}
    settings |= {"GIT_CONFIG_KEY_0": "core.excludesFile", "GIT_CONFIG_VALUE_0": str(tmp_path / "ignored")}
    write(tmp_path, {"ignored": "*\n"})
    write(tree, {"torch/new.py": ""})
    for name, value in (settings | {"GIT_TRACE": str(tmp_path / "trace")}).items():
        monkeypatch.setenv(name, value)
    assert Repository(tree).changed("HEAD") == {"torch/new.py": "A"}
    assert not (tmp_path / "trace").exists()


def test_shallow_clone_names_the_line_that_fetches_a_commit(tree: Path, cloned: Path) -> None:
    base = git(tree, "rev-parse", "HEAD~1")
    repository = clone(tree, cloned, "--depth=1")
    assert repository.is_shallow() and not repository.has(base)
    for ask in (repository.changed, lambda commit: repository.texts(commit, [ADD])):
        with pytest.raises(UsageError, match=f"it lacks commit {base}") as error:
            ask(base)
    assert "fetch --depth=1 origin" in error.value.todo
    type_line(error)
    assert repository.changed(base) == {ADD: "M", PYTHON: "M"}
    assert repository.texts(base, [ADD]) == {ADD: b"// add\n"}
    assert repository.is_shallow()


@pytest.mark.parametrize("kind", ["blob:none", "tree:0"])
def test_partial_clone_names_the_line_that_fetches_contents(tree: Path, cloned: Path, kind: str) -> None:
    base = git(tree, "rev-parse", "HEAD~1")
    repository = clone(tree, cloned, f"--filter={kind}")
    before = everything(cloned / ".git")
    read_all(repository, base)
    if kind == "tree:0":
        with pytest.raises(UsageError, match="may lack its list of files") as error:
            repository.changed(base)
        assert everything(cloned / ".git") == before
        type_line(error)
        before = everything(cloned / ".git")
    assert repository.changed(base) == {ADD: "M", PYTHON: "M"}
    names = {"torch/untouched.py", "torch/new.py"}
    assert repository.texts(base, sorted(names)).keys() == names
    with pytest.raises(UsageError, match=f"without the contents of {ADD}") as error:
        repository.texts(base, [PYTHON, ADD, "torch/missing.py"])
    assert everything(cloned / ".git") == before
    type_line(error)
    assert repository.texts(base, [PYTHON, ADD]) == {PYTHON: TEXT.encode(), ADD: b"// add\n"}


@pytest.mark.parametrize("kind", ["blob:none", "tree:0"])
def test_partial_clone_would_fetch(tree: Path, cloned: Path, kind: str) -> None:
    """The test above could fail: plain git fetches what it reads."""
    clone(tree, cloned, f"--filter={kind}")
    before = everything(cloned / ".git")
    assert git(cloned, "cat-file", "blob", f"HEAD~1:{ADD}") == "// add"
    assert everything(cloned / ".git") != before


@pytest.fixture
def programs(tmp_path: Path, tree: Path, cloned: Path) -> tuple[Repository, Path]:
    """A partial clone with all programs that git may run, and the file that they write."""
    marker = tmp_path / "marker"
    body = f"echo $0 $* >> {marker}\nexit 1"
    script, hook = program(tmp_path / "program", body), program(tmp_path / "hooks/post-index-change", body)
    repository = clone(tree, cloned, "--filter=blob:none")
    git(cloned, "submodule", "--quiet", "add", str(tree), "third_party/inner")
    commit(cloned, {"torch/own.py": ""})
    for folder in (cloned, cloned / "third_party/inner"):
        attributes = Path(git(folder, "rev-parse", "--absolute-git-dir")) / "info/attributes"
        attributes.write_text("* filter=mark diff=mark\nthird_party filter=by-process\n*.yaml filter=by-process\n")
        for setting in (
            *("filter.mark.clean", "filter.by-process.process", "core.fsmonitor", "diff.external"),
            *("diff.mark.textconv", "remote.origin.uploadpack", "core.sshCommand", "gpg.program", "core.pager"),
        ):
            git(folder, "config", setting, str(script))
        for setting in ("filter.mark.required", "log.showSignature", "core.untrackedCache"):
            git(folder, "config", setting, "true")
        git(folder, "config", "core.hooksPath", str(hook.parent))
        # As if all files were written when the index was: git must read them to know.
        os.utime(attributes.parent.parent / "index", (1, 1))
    marker.unlink(missing_ok=True)
    return repository, marker


def test_no_program_runs(tree: Path, programs: tuple[Repository, Path]) -> None:
    repository, marker = programs
    base = git(tree, "rev-parse", "HEAD~1")
    write(repository.path, {"torch/new.py": "", PYTHON: "edited\n"})
    os.utime(repository.path / "third_party/inner" / ADD, (1, 1))
    before = everything(repository.path / ".git")
    read_all(repository, base)
    assert repository.changed("HEAD") == {PYTHON: "M", "torch/new.py": "A"}
    assert repository.texts("HEAD", [PYTHON]) == {PYTHON: b"second = 1\n"}
    assert everything(repository.path / ".git") == before
    assert not marker.exists(), marker.read_text()


UNFILTERED = ("-c", "filter.mark.clean=", "-c", "filter.mark.required=false")


@pytest.mark.parametrize(
    "words",
    [
        pytest.param([*UNFILTERED, "diff-index", "HEAD"], id="process"),
        pytest.param(["-c", "core.fsmonitor=", "diff-files"], id="filter"),
        pytest.param(["ls-files", "--others"], id="fsmonitor"),
    ],
)
def test_programs_would_run(programs: tuple[Repository, Path], words: list[str]) -> None:
    """The test above could fail: each command is one that it uses, without what keeps programs from running."""
    repository, marker = programs
    subprocess.run(["git", *words], cwd=repository.path, check=False, capture_output=True, timeout=60)
    assert marker.is_file()


def test_killed_in_the_middle(tree: Path, cloned: Path) -> None:
    base = git(tree, "rev-parse", "HEAD~1")
    clone(tree, cloned, "--filter=blob:none")
    write(cloned, {f"torch/many{number}.py": str(number) for number in range(500)} | {ADD: "// edited\n"})
    before = everything(cloned / ".git")
    code = """
import sys, pathlib
from graft.checkout.repository import Repository
from graft.core.errors import UsageError
repository = Repository(pathlib.Path(sys.argv[1]))
print("ready", flush=True)
while True:
    repository.changed(sys.argv[2]), repository.state()
    try:
        repository.texts(sys.argv[2], sys.argv[3:])
    except UsageError:
        pass
"""
    for delay in random.Random(1).choices(range(60), k=4):
        words = [sys.executable, "-c", code, str(cloned), base, ADD, PYTHON]
        with subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            time.sleep(delay / 1000)
            os.killpg(process.pid, signal.SIGKILL)
        assert everything(cloned / ".git") == before
