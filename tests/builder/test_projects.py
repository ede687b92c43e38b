"""Projects: what pyproject.toml says, one package for several builds of torch, and the wheel that hatchling writes."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from hashlib import sha256
from importlib.metadata import PathDistribution
from pathlib import Path, PurePosixPath
from zipfile import ZipFile

import pytest
from graft import backend, validation
from graft.base.installed import Environment
from graft.compose.several import together
from graft.core.errors import UsageError
from graft.core.files import files_below
from graft.core.layout import ABI, INTERPRETER, REPOSITORY, TorchVersion
from graft.deliver.thin import TAKEN, requirement, write_sdist, write_wheel
from graft.new.skeleton import then
from graft.options import Request
from graft.project import pep517
from graft.project.settings import read_project
from helpers import Capture, Patch, of_the_base_wheel, refused, write
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from snippets import documents

PYPROJECT = """[build-system]
requires = ["torch-graft"]
build-backend = "graft.backend"

[project]
name = "my-ops"
version = "1.0"
license = "MIT"
dependencies = ["numpy"]

[project.entry-points.others]
one = "my_ops:one"
"""


def write_project(folder: Path, settings: str = "", *, package: str = "") -> Path:
    """Write a project without operators; with a Python package if ``package`` is its folder."""
    own = {f"{package}/__init__.py": "one = 1\n"} if package else {}
    return write(folder, {"pyproject.toml": f"{PYPROJECT}\n{settings}", "native_functions.yaml": "", **own})


@pytest.mark.parametrize(("package", "named"), [("", "my_ops"), ("my_ops", "_my_ops"), ("src/my_ops", "_my_ops")])
def test_operators_give_way_to_the_projects_own_package(tmp_path: Path, package: str, named: str) -> None:
    project = read_project(write_project(tmp_path, package=package))
    assert (project.natives, project.torches, project.package) == ((tmp_path,), (), named)
    with ZipFile(wheel_of(tmp_path)) as archive:
        top = {name.partition("/")[0] for name in archive.namelist()}
    assert top == {"_my_ops", "my_ops-1.0.dist-info", *(["my_ops"] if package else [])}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("[tool.graft]\nnative = 'other'", "other: it contains no native_functions.yaml"),
        ("[tool.graft]\ntorches = '2.13.0'", "has no key `torches`"),
        ("[tool.graft]\ntorch = 2.13", "torch is not a version"),
        ("[tool.graft]\ntorch = ['2.13.0', 1]", "torch is not a version"),
        ("[tool.graft", "pyproject.toml: "),
    ],
)
def test_mistakes_are_named_with_what_to_write(tmp_path: Path, settings: str, said: str) -> None:
    error = refused(UsageError, read_project, write_project(tmp_path, settings), match=said)
    assert str(tmp_path / "pyproject.toml") in str(error) and error.todo
    with pytest.raises(UsageError, match="no such file"):
        read_project(tmp_path / "none")


@pytest.fixture
def built(tmp_path: Path, monkeypatch: Patch) -> list[tuple[Request, list[str]]]:
    """What the builds of a project in the current folder are asked for. pip finds torch 2.13.0."""
    asked: list[tuple[Request, list[str]]] = []
    monkeypatch.chdir(write_project(tmp_path / "project"))
    for name in [name for name in os.environ if name.startswith("GRAFT_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(validation, "find_pin", lambda archs, **_: (TorchVersion("2.13.0"), archs))
    monkeypatch.setattr(pep517, "environment_of", lambda _: None)

    def thin_files(request: Request, _: str, versions: list[str], **__: object) -> object:
        asked.append((request, versions))
        raise UsageError("it went on")

    monkeypatch.setattr(pep517, "thin_files", thin_files)
    return asked


Asked = list[tuple[Request, list[str]]]


def exit_of(settings: Mapping[str, object] | None, capsys: Capture) -> tuple[int, str]:
    """Return the exit code of the backend, and what it prints."""
    error = refused(SystemExit, backend.build_wheel, "out", settings)
    return int(str(error.code)), capsys.readouterr().err


def test_settings_of_frontends_are_options(built: Asked, capsys: Capture, monkeypatch: Patch) -> None:
    monkeypatch.setenv("GRAFT_JOBS", "3")
    monkeypatch.setenv("GRAFT_CUDA_ARCHS", "80")
    exit_of({"jobs": "2", "cuda-archs": ["90", "100"], "pin": "2.14.1"}, capsys)
    ((request, versions),) = built
    assert (request.jobs, request.cuda_archs, versions) == (2, "90 100", ["2.14.1"])
    exit_of(None, capsys)
    assert (built[1][0].jobs, built[1][0].cuda_archs, built[1][1]) == (3, "80", ["2.13.0"])
    for name in ("JOBS", "PIN", "NAME"):  # make's own
        monkeypatch.setenv(name, "x")
    monkeypatch.delenv("GRAFT_JOBS")
    exit_of({}, capsys)
    assert (built[2][0].jobs, built[2][1]) == (os.cpu_count(), ["2.13.0"])
    monkeypatch.setenv("MAX_JOBS", "5")
    for name, text in {"pin": "2.13.0 2.14.1", "pins": "2.14.1 2.13.0"}.items():  # the second is an alias
        exit_of({name: text}, capsys)
        assert (built[-1][0].jobs, built[-1][1]) == (5, text.split())


@pytest.mark.parametrize(
    ("variables", "settings", "said"),
    [
        ({"GRAFT_JOBS": "x"}, {}, "error: GRAFT_JOBS: x is not a positive number\n  next: "),
        ({}, {"jobs": "x"}, "error: --config-settings jobs: x is not a positive number\n  next: "),
        ({}, {"jbos": "2"}, "error: --config-settings jbos: no such option\n  next: use one of: pin, wheel, jobs, "),
        ({"GRAFT_WHEEL": "/no.whl"}, {}, "error: GRAFT_WHEEL=/no.whl: no such file\n  next: set GRAFT_WHEEL to a"),
    ],
)
def test_a_mistake_in_them_is_told_in_a_line(
    variables: dict[str, str], settings: dict[str, str], said: str, built: Asked, capsys: Capture, monkeypatch: Patch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    code, shown = exit_of(settings, capsys)
    assert (code, shown[: len(said)], built) == (2, said, [])
    assert len(shown.splitlines()) == 2 and "Traceback" not in shown


def test_editable_install_that_cannot_see_torch(built: Asked, capsys: Capture, monkeypatch: Patch) -> None:
    """uv hides it from isolated builds."""
    monkeypatch.setattr(pep517, "find_site", lambda _: (Path("/site"), None))
    error = refused(SystemExit, backend.build_editable, "out")
    said = capsys.readouterr().err
    assert error.code == 2 and not built
    assert "an editable install is for the installed torch, which this build does not see" in said
    assert "next: use --no-build-isolation, or name versions in [tool.graft] torch and install without -e" in said


@pytest.mark.parametrize("name", ["build", "build/graft-{}", "build/graft-{}/my_ops"])
def test_links_in_a_project_are_not_followed(
    name: str, tmp_path: Path, built: Asked, capsys: Capture, monkeypatch: Patch
) -> None:
    """A repository may hold some. Everything in the folder of the operators is replaced."""
    theirs = write(tmp_path / "theirs", {"edited.json": "", "folder/file": ""})
    environment = Environment("python", tmp_path, tmp_path)
    monkeypatch.setattr(pep517, "find_site", lambda _: (tmp_path, tmp_path))
    monkeypatch.setattr(pep517, "find_environment", lambda _: environment)
    link = Path(name.format(f"{ABI}-{sha256(str(tmp_path).encode()).hexdigest()[:8]}")).absolute()
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(theirs)
    error = refused(SystemExit, backend.build_editable, "out")
    assert error.code == 2 and not built
    assert f"{link}: it is a link to {theirs}, " in capsys.readouterr().err
    assert files_below(theirs) == [Path("edited.json"), Path("folder/file")]


COMMANDS = [
    (path, line.partition("#")[0])
    for path in documents()
    for line in re.findall(r"^.*(?:python -m build|pip wheel|pip install|uv build).*$", path.read_text(), re.M)
]


def test_documents_build_projects_without_isolation_and_by_path() -> None:
    """The tool is on no index yet, where anyone could take its name; so can that of a folder."""
    builds = [line for _, line in COMMANDS if "python -m build" in line]
    assert builds and all("--no-isolation" in line for line in builds)
    assert not [line for _, line in COMMANDS if re.search(r"(?:wheel|install|build|-e|isolation) my_\w+", line)]
    assert "on no package index yet" in (REPOSITORY / "scripts/guides/projects.md").read_text()


@pytest.mark.parametrize(("given", "named"), [("my_ops", "./my_ops"), ("~/my_ops", "~/my_ops"), ("a/b", "a/b")])
def test_what_follows_new_is_not_for_strangers_packages(given: str, named: str) -> None:
    said = then(given)
    assert f"pip install --no-build-isolation -e {named}," in said
    assert f"python -m build --no-isolation {named};" in said and "--find-links" in said


@pytest.mark.parametrize(
    ("versions", "allowed", "refused"),
    [
        (["2.13.0+cpu"], ["2.13.0+cpu"], ["2.13.0", "2.13.0+cu130", "2.13.1+cpu"]),
        (["2.13.0"], ["2.13.0"], ["2.13.1", "2.12.0"]),
        (["2.13.0", "2.14.1"], ["2.13.0", "2.14.1"], ["2.14.0", "2.13.1", "2.12.1", "2.14.2", "2.15.0"]),
        (["2.15.0", "2.11.0", "2.13.0+cpu"], ["2.11.0", "2.13.0+cpu", "2.15.0"], ["2.12.0", "2.13.1", "2.16.0"]),
    ],
)
def test_pip_takes_the_releases_that_the_wheel_was_built_for(
    versions: list[str], allowed: list[str], refused: list[str]
) -> None:
    wanted = SpecifierSet(requirement(versions).removeprefix("torch"))
    assert [version for version in [*allowed, *refused] if wanted.contains(version)] == allowed


def of_one_torch(folder: str, **texts: bytes) -> dict[str, bytes]:
    """The package for one torch, with ``texts`` in its folder."""
    own = {f"ops/{folder}/{name}": text for name, text in texts.items()}
    return {"ops/builds.json": json.dumps([{"folder": folder}]).encode(), "ops/__init__.py": b"same", **own}


def test_files_that_are_the_same_for_all_are_there_once() -> None:
    """But libraries stay beside those that need them."""
    libraries = {"_C.so": b"same", "libouter-1a2b3c4d.so.1": b"same"}
    one = of_one_torch("a", C=b"1", text=b"same", **libraries)
    assert {**together("ops", [one]), "ops/builds.json": b""} == {**one, "ops/builds.json": b""}
    files = together("ops", [one, of_one_torch("b", C=b"2", text=b"same", more=b"m", **libraries)])
    assert json.loads(files.pop("ops/builds.json")) == [{"folder": "a"}, {"folder": "b"}]
    own = {"ops/__init__.py": b"same", "ops/shared/text": b"same", "ops/a/C": b"1", "ops/b/C": b"2", "ops/b/more": b"m"}
    assert files == own | {f"ops/{torch}/{name}": b"same" for torch in "ab" for name in libraries}


OPERATORS = {"_my_ops/__init__.py": b"", "_my_ops/_C.so": b"library"}


def wheel_of(project: Path, *, is_editable: bool = False) -> Path:
    """Write the wheel of a project beside it."""
    config, out = read_project(project).config, project.parent / "out"
    how = {"package": "_my_ops", "platform": "linux_x86_64", "out": out, "is_editable": is_editable}
    return write_wheel(project, config, OPERATORS, requires=["torch==2.13.0"], **how)


@pytest.mark.parametrize("is_editable", [False, True])
def test_the_wheel_has_metadata_operators_and_python(tmp_path: Path, is_editable: bool) -> None:
    root = write_project(tmp_path / "project", package="src/my_ops")
    wheel = wheel_of(root, is_editable=is_editable)
    assert wheel.name == f"my_ops-1.0-{INTERPRETER}-{INTERPRETER}-linux_x86_64.whl"
    with ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read("my_ops-1.0.dist-info/METADATA").decode()
        entry_points = archive.read("my_ops-1.0.dist-info/entry_points.txt").decode()
        paths = [archive.read(name).decode() for name in names if name.endswith(".pth")]
    assert ("my_ops/__init__.py" in names) != is_editable and "_my_ops/_C.so" in names
    assert paths == ([f"{root}/src"] if is_editable else [])
    assert "Requires-Dist: torch==2.13.0\n" in metadata and "Requires-Dist: numpy\n" in metadata
    assert "[torch.backends]\n_my_ops = _my_ops:autoload\n" in entry_points and "[others]" in entry_points


def test_names_of_others_are_refused(tmp_path: Path) -> None:
    """A package of that name would hide or replace theirs."""
    for name in ("torch", "Functorch", "os", "numpy", "typing-extensions", "2d-ops"):
        config = PYPROJECT.replace('"my-ops"', f'"{name}"')
        write(tmp_path, {"pyproject.toml": config, "native_functions.yaml": ""})
        error = refused(UsageError, read_project, tmp_path, match=rf"pyproject.toml: \[project\] name is {name}, ")
        assert error.todo


def test_what_torch_requires_is_known() -> None:
    (info,) = (of_the_base_wheel("GRAFT_BASE_FOLDER") / "tree").glob("torch-*.dist-info")
    required = [Requirement(text) for text in PathDistribution(info).requires or []]
    names = {each.name.replace("-", "_") for each in required if "extra" not in str(each.marker)}
    assert len(names) > 5 and {name for name in names if not name.startswith(("nvidia_", "cuda_"))} <= TAKEN


def built_with(tmp_path: Path, settings: str, *, is_editable: bool = False) -> set[str]:
    """Return the members of the wheel of a project with ``settings``, beside those of its operators."""
    root = write(write_project(tmp_path / "project", settings, package="my_ops"), {"x": ""})
    with ZipFile(wheel_of(root, is_editable=is_editable)) as archive:
        return {name for name in archive.namelist() if not name.startswith(("_my_ops/", "my_ops-1.0.dist-info/"))}


@pytest.mark.parametrize("is_editable", [False, True])
@pytest.mark.parametrize(
    "member",
    [
        *("../x", "../../../x", "my_ops/../../x", "torch/version.py", "./torch/version.py", "my_ops/../torch/x"),
        *("torchgen/x", "functorch/x.py", "torch.py", "torch-2.13.0.dist-info/RECORD", "os.py", "numpy/core/x"),
        *("my_ops-1.0.data/purelib/torch/x", "my_ops-1.0.data/data/lib/python3.11/site-packages/torch/x"),
    ],
)
def test_members_that_would_replace_other_packages_are_refused(tmp_path: Path, member: str, is_editable: bool) -> None:
    hook = HOOK.format(more=f"build_data['force_include_editable'][self.root + '/x'] = {member!r}")
    write(tmp_path / "project", {"hatch_build.py": hook})
    settings = "hooks.custom]\n" if is_editable else f"force-include]\nx = {member!r}\n"
    with pytest.raises(UsageError) as caught:
        built_with(tmp_path, f"[tool.hatch.build.targets.wheel.{settings}", is_editable=is_editable)
    assert str(caught.value).startswith(f"{tmp_path}/project/pyproject.toml: the wheel would have ")
    assert PurePosixPath(member).name in caught.value.what and "force-include" in caught.value.todo
    assert not list((tmp_path / "out").iterdir())


def test_member_that_a_hook_adds_to_the_wheel_is_refused(tmp_path: Path) -> None:
    hook = "def finalize(self, _, data, wheel):\n        __import__('zipfile').ZipFile(wheel, 'a').writestr('/x', '')\n"
    write(tmp_path / "project", {"hatch_build.py": HOOK.format(more=f"pass\n    {hook}")})
    with pytest.raises(UsageError, match="the wheel would have /x\n"):
        built_with(tmp_path, "[tool.hatch.build.hooks.custom]")


def test_other_members_are_the_project_s(tmp_path: Path) -> None:
    named = {"my_ops/torch/x", "mine.pth", "torch_mine/x", "my_ops-1.0.data/data/share/torch/x", "my_ops/a..b"}
    members = "".join(f"'x{number}' = {name!r}\n" for number, name in enumerate(named))
    write(tmp_path / "project", {f"x{number}": "" for number in range(len(named))})
    settings = (
        "[tool.hatch.build.targets.wheel]\npackages = ['my_ops']\n[tool.hatch.build.targets.wheel.force-include]\n"
    )
    assert built_with(tmp_path, settings + members) == {*named, "my_ops/__init__.py"}


HOOK = """
from hatchling.builders.hooks.plugin.interface import BuildHookInterface
class Build(BuildHookInterface):
    def initialize(self, version, build_data):
        {more}
"""

METADATA_HOOK = """
from hatchling.metadata.plugin.interface import MetadataHookInterface
class Metadata(MetadataHookInterface):
    def update(self, metadata):
        metadata["description"] = "by a hook"
"""


def test_hooks_are_named_before_they_run(tmp_path: Path, capfd: Capture) -> None:
    """They are code of the project, which runs when pip builds it."""
    file = tmp_path / "project/pyproject.toml"
    hook = HOOK.format(more="import sys; print('the hook runs', file=sys.stderr, flush=True)")
    write(tmp_path / "project", {"hatch_build.py": hook, "metadata.py": METADATA_HOOK})
    hooks = "[tool.hatch.build.hooks.custom]\n[tool.hatch.metadata.hooks.custom]\npath = 'metadata.py'\n"
    built_with(tmp_path, hooks)
    said = f"{file}: hatchling runs code of the project: build hook `custom`, metadata hook `custom`\n"
    assert capfd.readouterr().err == f"{said}the hook runs\n"
    write_sdist(file.parent, read_project(file.parent).config, tmp_path)
    assert capfd.readouterr().err == f"{said}the hook runs\n"
    version = "[tool.hatch.version]\nsource = 'code'\npath = 'my_ops/__init__.py'\nexpression = 'str(one)'\n"
    config = PYPROJECT.replace('version = "1.0"', 'dynamic = ["version"]')
    file.write_text(f"{config}\n{version}")
    write_sdist(file.parent, read_project(file.parent).config, tmp_path)
    assert capfd.readouterr().err == f"{file}: hatchling runs code of the project: version source `code`\n"
    file.write_text(config.replace('dynamic = ["version"]', 'version = "1"'))
    write_sdist(file.parent, read_project(file.parent).config, tmp_path)
    assert not capfd.readouterr().err


def test_hatchlings_message(tmp_path: Path) -> None:
    root = write_project(tmp_path / "project")
    config = {"project": {"name": "my-ops", "version": "1.0", "readme": "missing.md"}}
    with pytest.raises(UsageError, match=r"pyproject.toml: .*missing.md"):
        write_wheel(root, config, OPERATORS, package="my_ops", requires=[], platform="any", out=tmp_path)
