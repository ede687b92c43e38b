"""Write thin wheels, and the sdists of projects, with hatchling: metadata, Python code and operators."""

from __future__ import annotations

import copy
import keyword
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import ZipFile

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from packaging.version import InvalidVersion, Version

from ..core.console import say
from ..core.errors import BuildError, UsageError
from ..core.files import lay_out_files
from ..core.layout import ABI, INTERPRETER
from ..core.system_errors import remedy
from .editor import LINKS

# Names that are valid for Python and for wheels: pip allows no double underscore, and none at an end.
_NAME = re.compile("[A-Za-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*")

# Names that no wheel may replace or hide: torch's packages, those that it requires or imports, and Python's modules.
TAKEN = frozenset(
    {"torch", "torchgen", "functorch", "cuda", "nvidia", "triton", "numpy", "sympy", "mpmath", "networkx", "fsspec"}
    | {"filelock", "jinja2", "markupsafe", "typing_extensions", "setuptools", "pkg_resources"}
    | sys.stdlib_module_names
)

# The start of the path of members below ``*.data`` that pip installs into site-packages.
_SCHEME = re.compile(r"^[^/]+\.data/(?:(?:pure|plat)lib|data/(?:.*/)?(?:site|dist)-packages)/")

# Since 2.0, each minor release of PyTorch has had at most this many bug-fix releases.
_FIXES = 2


class _Builder(WheelBuilder):
    """Builds wheels for one Python and platform, with the files in the folder ``operators`` added."""

    def __init__(self, root: Path, metadata: ProjectMetadata[PluginManager], operators: Path, tag: str) -> None:
        super().__init__(str(root), metadata=metadata)
        self._operators = operators
        self._tag = tag

    def get_default_build_data(self) -> dict[str, Any]:
        forced = {str(path): path.name for path in sorted(self._operators.iterdir())}
        more = {"force_include": forced, "force_include_editable": forced, "pure_python": False, "tag": self._tag}
        return {**super().get_default_build_data(), **more}

    def get_default_tag(self) -> str:
        return self._tag


def is_own_name(name: str) -> bool:
    """Return whether a package can have this name: Python can import it, pip can install it, and no other has it."""
    return bool(_NAME.fullmatch(name)) and not keyword.iskeyword(name) and name not in TAKEN


def package_name(name: str, folder: Path) -> str:
    """Return the name of a thin wheel's package: ``name``, or that of the native folder."""
    chosen = name or re.sub(r"[\W_]+", "_", folder.name)
    if not is_own_name(chosen):
        raise UsageError(
            f"NAME={chosen}: a thin wheel's package cannot have this name",
            cause="Python cannot import it, pip cannot install it, or it is that of another package",
            todo="set NAME to one such as my_ops",
        )
    return chosen


def thin_version(version: str, torches: Sequence[str]) -> str:
    """Return the version of a thin wheel. A wheel for one torch names it in the local part, so that wheels for
    different torches can share a folder. A wheel for several has no local part, since package indexes accept none.
    """
    try:
        parsed = Version(version)
    except InvalidVersion as error:
        raise UsageError(f"VERSION={version}: {error}", todo="set VERSION to one such as 1.2.0") from error
    if parsed.local:
        raise UsageError(
            f"VERSION={version}: the part after + is reserved for the version of torch", todo=f"set {parsed.public}"
        )
    if len(torches) > 1:
        return parsed.public
    return f"{parsed.public}+torch{torches[0].replace('+', '.')}"


def requirement(versions: Sequence[str]) -> str:
    """Return the requirement of a wheel for ``versions`` of torch: one version, or a range without missing releases.

    A range names no local version, since wheels on package indexes have none.
    """
    if len(versions) == 1:
        return f"torch=={versions[0]}"
    releases = sorted({Version(Version(version).public) for version in versions})
    first, last = releases[0], releases[-1]
    between = [
        Version(f"{first.major}.{minor}.{fix}")
        for minor in range(first.minor, last.minor + 1)
        for fix in range(_FIXES + 1)
    ]
    missing = [each for each in between if first < each < last and each not in releases]
    return f"torch>={first},<={last}" + "".join(f",!={each}" for each in missing)


def write_wheel(
    root: Path | None,
    config: Mapping[str, Any],
    operators: Mapping[str, bytes],
    *,
    package: str,
    requires: Iterable[str],
    platform: str,
    out: Path,
    is_editable: bool = False,
) -> Path:
    """Write a wheel into ``out``, which is created if it does not exist. Return its path.

    Args:
        root: the folder of the project; None if there is none.
        config: the content of its pyproject.toml.
        operators: the files of the operators, by path in the wheel.
        package: the package that PyTorch loads them from, at the end of ``import torch``.
        requires: the requirements in addition to the project's own.
        platform: the platform tag.
        out: the output folder.
        is_editable: whether the project's Python code stays where it is.
    """
    tag = f"{INTERPRETER}-{ABI}-{platform}"
    kind = "editable" if is_editable else "standard"
    try:
        out.mkdir(parents=True, exist_ok=True)
        # Build beside the final path, so that the wheel is there whole or not at all.
        with TemporaryDirectory(prefix=".graft-", dir=out) as name, _explained(root):
            lay_out_files(Path(name, "operators"), operators)
            for library in Path(name, "operators").rglob("*.so*"):
                library.chmod(0o755)  # the mode of torch's own
            project = root or Path(name, "project")
            _name_hooks(WheelBuilder(str(project), metadata=_hatchling(project, config)))
            metadata = _metadata(project, config, package, requires)
            builder = _Builder(project, metadata, Path(name, "operators"), tag)
            wheel = Path(next(builder.build(directory=name, versions=[kind])))
            _check_members(wheel, project)
            return wheel.replace(out / wheel.name)
    except OSError as error:
        raise BuildError(f"{out}: {error.strerror or error}", todo=remedy(error, out)) from error


def write_sdist(root: Path, config: Mapping[str, Any], out: Path, *, without: Iterable[Path] = ()) -> Path:
    """Write the sdist into ``out``: the files of the project that git does not ignore, except for the folders
    ``without``, and links for editors. Return its path.
    """
    changed = copy.deepcopy(dict(config))
    left_out = [f"/{folder.relative_to(root)}" for folder in without if folder.is_relative_to(root)]
    target = _target(changed, "sdist")
    target["exclude"] = [*target.get("exclude", ()), *left_out, *LINKS]
    with _explained(root):
        builder = SdistBuilder(str(root), metadata=_hatchling(root, changed))
        _name_hooks(builder)
        return Path(next(builder.build(directory=str(out), versions=["standard"])))


def _hatchling(root: Path, config: Mapping[str, Any]) -> ProjectMetadata[PluginManager]:
    return ProjectMetadata(str(root), PluginManager(), dict(config))


def _name_hooks(builder: WheelBuilder | SdistBuilder) -> None:
    """Print which code of the project is about to run."""
    hatch = builder.metadata.hatch
    names = [f"build hook `{name}`" for name in builder.config.hook_config]
    names += [f"metadata hook `{name}`" for name in hatch.metadata.hook_config]
    if "version" in hatch.config and hatch.version.source_name == "code":
        names.append("version source `code`")
    if names:
        say(f"{builder.root}/pyproject.toml: hatchling runs code of the project: {', '.join(names)}")


def _check_members(wheel: Path, root: Path) -> None:
    """Check that no member of a wheel leads out of it, or belongs to a package in ``TAKEN``."""
    with ZipFile(wheel) as archive:
        refused = [name for name in archive.namelist() if _is_of_others(name)]
    if refused:
        raise UsageError(
            f"{root}/pyproject.toml: the wheel would have {', '.join(refused)}",
            cause="this is outside of the wheel, or belongs to torch, to what it requires or to Python",
            todo="change what puts it there: packages, force-include, shared-data or hooks in [tool.hatch.build]",
        )


def _is_of_others(member: str) -> bool:
    parts = PurePosixPath(_SCHEME.sub("", member)).parts
    # A name ends at a dot or hyphen, as in typing_extensions.py and torch-2.13.0.dist-info, but not in torch-stubs.
    return ".." in parts or parts[0] == "/" or re.split(r"\.|-(?!stubs)", parts[0])[0] in TAKEN


@contextmanager
def _explained(root: Path | None) -> Iterator[None]:
    """Raise hatchling's errors about metadata, which have no class of their own, as errors of the user's file."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        file = f"{root / 'pyproject.toml'}: " if root else ""
        raise UsageError(f"{file}{error}", todo="correct the table [project]") from error


def _metadata(
    root: Path, config: Mapping[str, Any], package: str, requires: Iterable[str]
) -> ProjectMetadata[PluginManager]:
    """Return the project's metadata with the requirements and the entry point of the operators."""
    changed = copy.deepcopy(dict(config))
    project = changed["project"]
    project["dependencies"] = [*project.get("dependencies", ()), *requires]
    project.setdefault("entry-points", {}).setdefault("torch.backends", {})[package] = f"{package}:autoload"
    target = _target(changed, "wheel")
    if not _has_code(root, changed, target):
        target["bypass-selection"] = True
    return _hatchling(root, changed)


def _target(config: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return hatchling's settings for wheels or sdists in ``config``, which are added if there are none."""
    for key in ("tool", "hatch", "build", "targets", kind):
        config = config.setdefault(key, {})
    return config


def _has_code(root: Path, config: Mapping[str, Any], target: Mapping[str, Any]) -> bool:
    """Return whether hatchling knows which Python code goes into the wheel: by its settings, or by the name."""
    if target:
        return True
    builder = WheelBuilder(str(root), metadata=_hatchling(root, config))
    try:
        return bool(builder.config.default_file_selection_options)
    except ValueError:
        return False
