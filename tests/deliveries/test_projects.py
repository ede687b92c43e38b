"""A project with operators, built and installed by the installed tool: away from the checkout, with pip and uv."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml
from graft.core.layout import REPOSITORY
from helpers import git, share_builds, write
from users import Environment, write_clip

SCHEMA = "soft_clip(Tensor self, Scalar limit=1) -> Tensor"

VALUE = "import torch; print(torch.soft_clip(torch.zeros(1)).item(), torch.ones(1).soft_clip(limit=1).item())"


class Developer(Environment):
    """An environment in which the tool builds. Its cache folder is its own, with what others derived and compiled."""

    cache: Path

    def command(self, *words: str | Path, cwd: Path, is_right: bool = True, **variables: str) -> str:
        """Run a program of the environment; not pip, which would run in the copied one. Return what it prints."""
        own = {"GRAFT_HOME": str(self.cache), "GRAFT_CUDA_ARCHS": "none", "VIRTUAL_ENV": str(self.folder)}
        env = {**os.environ, **own, **variables}
        for name in ("PYTHONPATH", "PYTEST_ADDOPTS", "GRAFT_NATIVE"):
            env.pop(name, None)
        program, *arguments = words
        done = subprocess.run(
            [self.folder / "bin" / program, *arguments],
            cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        assert (done.returncode == 0) == is_right, done.stdout
        return done.stdout


@pytest.fixture(scope="session")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of the tool."""
    out = tmp_path_factory.mktemp("tool")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    (wheel,) = out.glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def cache(base_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    share_builds(folder, folder, base_wheel.parent.resolve())
    return folder


@pytest.fixture(scope="module")
def developer(stock_copy: Environment, cache: Path, tool: Path) -> Developer:
    developer = Developer(stock_copy.folder)
    developer.cache = cache
    developer.pip("install", "--prefer-binary", tool, "build", "uv", "pytest", "pre-commit")
    return developer


@pytest.fixture(scope="module")
def project(developer: Developer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project that the tool wrote, with the files of the README's operator, installed in editable mode."""
    folder = tmp_path_factory.mktemp("project")
    pin = developer.print("torch.__version__")
    developer.command("graft", "new", "--project", "my_ops", "--schema", SCHEMA, "--pin", pin, cwd=folder)
    write_clip(folder / "my_ops/native")
    said = developer.command(
        "python", "-m", "pip", "install", "--no-build-isolation", "--no-deps", "-e", "my_ops", cwd=folder
    )
    assert "Successfully installed my-ops-0.1.0" in said
    return folder / "my_ops"


def edit(project: Path, old: str, new: str) -> None:
    source = project / "native/SoftClip.cpp"
    text = source.read_text()
    assert old in text
    source.write_text(text.replace(old, new))


def test_edited_kernel_is_compiled_at_the_next_import(developer: Developer, project: Path) -> None:
    assert developer.run(VALUE).stdout.startswith("0.0 0.76")
    edit(project, ".tanh()", ".tanh().add(1)")
    assert developer.run(VALUE, GRAFT_EDITABLE_REBUILD="0").stdout.startswith("0.0 0.76")
    done = developer.run(VALUE)
    assert done.stdout.startswith("1.0 1.76")
    assert done.stderr == "my_ops: building what was edited ...\n"
    assert not developer.run(VALUE).stderr
    edit(project, ".tanh().add(1)", ".tanh()")


@pytest.mark.slow
def test_headers_that_no_folder_of_the_build_has(developer: Developer, project: Path, tmp_path: Path) -> None:
    """One elsewhere, and one in a folder that is read once a source asks for it."""
    elsewhere, asked = tmp_path / "added.h", project / "native/lib/opt.h"
    elsewhere.write_text("#define ADDED 3\n")
    source = project / "native/SoftClip.cpp"
    before = source.read_text()
    head = f'#include "{elsewhere}"\n#if __has_include("lib/opt.h")\n#undef ADDED\n#define ADDED 5\n#endif\n'
    source.write_text(head + before.replace(".tanh()", ".tanh().add(ADDED)"))
    assert developer.run(VALUE).stdout.startswith("3.0 ")
    asked.parent.mkdir()
    asked.touch()
    assert developer.run(VALUE).stdout.startswith("5.0 ")
    asked.unlink()
    elsewhere.write_text("#define ADDED 4\n")
    assert developer.run(VALUE).stdout.startswith("4.0 ")
    assert not developer.run(VALUE).stderr
    source.write_text(before)
    assert developer.run(VALUE).stdout.startswith("0.0 0.76")


def test_mistake_is_reported_with_its_line_and_torch_still_works(developer: Developer, project: Path) -> None:
    edit(project, ".tanh()", ".tanhh()")
    code = "import torch; print(torch.ones(1).item(), hasattr(torch, 'soft_clip'))\n"
    done = developer.run(f"{code}try:\n    import my_ops\nexcept ImportError as error: print(error)")
    assert done.stdout.startswith("1.0 False\nmy_ops: ")
    assert f"{project}/native/SoftClip.cpp:8:" in done.stdout
    assert "has no member named 'tanhh'" in done.stderr
    code = "import torch; torch.soft_clip"
    with pytest.raises(AssertionError, match=r"AttributeError: .*no attribute 'soft_clip'. my_ops has it, but /"):
        developer.run(code)
    edit(project, ".tanhh()", ".tanh()")
    assert developer.run(VALUE).stdout.startswith("0.0 0.76")


def test_wheel_works_elsewhere_and_leaves_nothing_behind(
    developer: Developer, project: Path, stock: Environment, tmp_path: Path
) -> None:
    """It is the same from two frontends, and from the source distribution."""
    build = ("python", "-m", "build", "--no-isolation", "--outdir", tmp_path)
    developer.command(*build, "--wheel", cwd=project)
    (wheel,) = tmp_path.glob("my_ops-0.1.0-*.whl")
    uv = ("uv", "build", "--wheel", "--no-build-isolation", "--offline", "--out-dir", tmp_path / "uv")
    developer.command(*uv, cwd=project)
    developer.command(*build, "--sdist", cwd=project)
    # Variables of make are none of the frontends'.
    pip = ("python", "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "-w", tmp_path / "pip")
    developer.command(*pip, tmp_path / "my_ops-0.1.0.tar.gz", cwd=tmp_path, JOBS="x", NAME="a machine")
    for other in ("uv", "pip"):
        assert (tmp_path / other / wheel.name).read_bytes() == wheel.read_bytes()
    before = stock.content()
    stock.pip("install", "--no-deps", wheel)
    assert stock.run(VALUE).stdout.startswith("0.0 0.76")
    assert stock.print("__import__('importlib.metadata').metadata.requires('my-ops')").startswith("['torch==")
    stock.pip("uninstall", "-y", "my-ops")
    assert stock.content() == before


@pytest.fixture(scope="module")
def index(tool: Path, base_wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Folders with all that an isolated build takes from package indexes."""
    folder = tmp_path_factory.mktemp("index")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "--prefer-binary", "-w", folder, tool, "editables"], check=True)
    return [folder, base_wheel.resolve().parent]


@pytest.fixture(scope="module")
def bare(cache: Path, tmp_path_factory: pytest.TempPathFactory) -> Developer:
    """An environment with frontends alone."""
    folder = tmp_path_factory.mktemp("bare") / "environment"
    venv.EnvBuilder(symlinks=True, with_pip=True).create(folder)
    developer = Developer(folder)
    developer.cache = cache
    developer.pip("install", "--prefer-binary", "build", "uv")
    return developer


# Frontends with the names of their variables, and what separates folders there.
FRONTENDS = {
    "pip": (("python", "-m", "pip", "wheel", "--no-deps", "-w"), "PIP", " "),
    "build": (("python", "-m", "build", "--wheel", "--outdir"), "PIP", " "),
    "uv": (("uv", "build", "--wheel", "--out-dir"), "UV", ","),
}
BY_NIGHT = [pytest.param(name, True, marks=pytest.mark.slow, id=f"{name}, empty cache") for name in FRONTENDS]


@pytest.mark.parametrize(("frontend", "is_empty"), [pytest.param("pip", False, id="pip"), *BY_NIGHT])
def test_isolated_build(
    bare: Developer, project: Path, index: list[Path], base_wheel: Path, tmp_path: Path, frontend: str, is_empty: bool
) -> None:
    """With an empty cache it downloads the torch that the project names, with the pip that the tool requires."""
    (command, variable, separator), pin = FRONTENDS[frontend], base_wheel.name.split("-")[1]
    shutil.copytree(project, tmp_path / "my_ops", ignore=shutil.ignore_patterns("build", "__pycache__"))
    settings = tmp_path / "my_ops/pyproject.toml"
    settings.write_text(settings.read_text().replace("[tool.graft]\n", f'[tool.graft]\ntorch = "{pin}"\n'))
    links = separator.join(map(str, index))
    variables = {"PIP_FIND_LINKS": "", f"{variable}_NO_INDEX": "1", f"{variable}_FIND_LINKS": links}
    variables |= {"GRAFT_HOME": str(tmp_path / "home")} if is_empty else {}
    bare.command(*command, tmp_path, "./my_ops", cwd=tmp_path, **variables)
    (wheel,) = tmp_path.glob("my_ops-0.1.0*.whl")
    with ZipFile(wheel) as archive:
        assert f"Requires-Dist: torch=={pin}\n" in archive.read("my_ops-0.1.0.dist-info/METADATA").decode()


def test_nothing_is_written_into_the_tool(developer: Developer, project: Path, tool: Path) -> None:
    files = [path for path in (developer.packages / "graft").rglob("*") if path.is_file()]
    there = {path.relative_to(developer.packages).as_posix(): path.read_bytes() for path in files}
    with ZipFile(tool) as archive:
        shipped = {name: archive.read(name) for name in archive.namelist() if name.startswith("graft/")}
    assert {name: content for name, content in there.items() if "__pycache__" not in name} == shipped


def test_commit_with_a_mistake_is_refused(developer: Developer, project: Path, tmp_path: Path) -> None:
    """By the hook that `graft new` writes, with the real pre-commit."""
    copy = shutil.copytree(project, tmp_path / "my_ops")
    git(copy, "init", "-q")
    git(copy, "add", "-A")
    path = f"{developer.folder / 'bin'}:{os.environ['PATH']}"
    commit = ("pre-commit", "run", "graft-check", "--all-files")
    given = {"PATH": path, "PRE_COMMIT_HOME": str(tmp_path / "home")}
    assert "Passed" in developer.command(*commit, cwd=copy, **given)
    entries = copy / "native/native_functions.yaml"
    entries.write_text(entries.read_text().replace("-> Tensor", "-> Tensr"))
    git(copy, "add", "-A")
    said = developer.command(*commit, cwd=copy, is_right=False, **given)
    assert "did you mean `Tensor`? [unknown-type]" in said
    # Files of others ask for no check.
    git(copy, "rm", "-q", "-r", "--cached", ".")
    write(copy, {"notes.txt": "Notes.\n"})
    git(copy, "add", "notes.txt")
    assert "no files to check" in developer.command("pre-commit", "run", cwd=copy, **given)


def steps(project: Path) -> dict[str, str]:
    """Return the commands of the workflow that `graft new` writes, by the names of its steps."""
    workflow = yaml.safe_load((project / ".github/workflows/graft.yml").read_text())
    return {step["name"]: step["run"] for step in workflow["jobs"]["wheel"]["steps"] if "run" in step}


@pytest.mark.slow
def test_workflow_builds_and_tests_the_wheel(developer: Developer, project: Path, tool: Path, tmp_path: Path) -> None:
    """Its commands, in its order, in an environment that has the torch of its project."""
    copy = shutil.copytree(project, tmp_path / "my_ops", ignore=shutil.ignore_patterns("build", "__pycache__"))
    settings, pin = copy / "pyproject.toml", developer.print("torch.__version__")
    settings.write_text(settings.read_text().replace("[tool.graft]\n", f'[tool.graft]\ntorch = "{pin}"\n'))
    developer.pip("uninstall", "-y", "my-ops")
    path = f"{developer.folder / 'bin'}:{os.environ['PATH']}"

    def typed(name: str, *, is_right: bool = True, **variables: str) -> str:
        command = ("python", "-c", "import subprocess, sys; sys.exit(subprocess.call(sys.argv[1:]))")
        bash = ("bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", steps(copy)[name])
        return developer.command(*command, *bash, cwd=copy, is_right=is_right, PATH=path, **variables)

    assert [*steps(copy)] == ["install Graft", "check", "build", "test with each torch"]
    assert "set the variable TORCH_GRAFT" in typed("install Graft", is_right=False, TORCH_GRAFT="")
    typed("install Graft", TORCH_GRAFT=str(tool))
    entries = (copy / "native/native_functions.yaml").read_text()
    write(copy, {"native/native_functions.yaml": entries.replace("-> Tensor", "-> Tensr"), ".git/HEAD": ""})
    said = typed("check", is_right=False, GITHUB_ACTIONS="true")
    assert "::error file=native/native_functions.yaml,line=1,col=" in said
    write(copy, {"native/native_functions.yaml": entries})
    assert "no errors found" in typed("check")
    typed("build")
    assert "NotImplementedError: TODO" in typed("test with each torch", is_right=False)
    tests = copy / "native/tests/test_soft_clip.py"
    todo = 'raise NotImplementedError("TODO: the reference of soft_clip")'
    write(copy, {"native/tests/test_soft_clip.py": tests.read_text().replace(todo, "return torch.tanh(self / limit)")})
    said = typed("test with each torch")
    assert f"torch=={pin}" in said and " passed" in said
    (wheel,) = (copy / "dist").glob("*.whl")
    assert wheel.name.startswith("my_ops-0.1.0")
