"""Write thin wheels, and the sdists of projects, with hatchling: metadata, Python code and operators."""

from __future__ import annotations

import copy
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager
from packaging.version import InvalidVersion, Version

from ..core.errors import PackError, UsageError, remedy
from ..core.files import lay_out_files
from ..core.layout import ABI, INTERPRETER

# Names that are valid for Python and for wheels: pip allows no double underscore, and none at an end.
_NAME = re.compile("[A-Za-z][A-Za-z0-9]*(_[A-Za-z0-9]+)*")

# Packages that are installed with torch.
_TAKEN = ("torch", "torchgen", "functorch")


# Releases of PyTorch have had at most this many bug-fix releases, in addition to the first, since 2.0.
_FIXES = 2


class _Builder(WheelBuilder):
    """A builder of wheels with files from elsewhere, for one Python and platform."""

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


def package_name(name: str, folder: Path) -> str:
    """Return the name of a thin wheel's package: ``name``, or that of the native folder.

    Raises:
        UsageError: Python cannot import it, or pip cannot install it.
    """
    chosen = name or re.sub(r"[\W_]+", "_", folder.name)
    if not _NAME.fullmatch(chosen) or keyword.iskeyword(chosen) or chosen in _TAKEN:
        raise UsageError(
            f"NAME={chosen}: a thin wheel's package cannot have this name",
            todo="set NAME to a name that Python can import, such as my_ops",
        )
    return chosen


def thin_version(version: str, torches: Sequence[str]) -> str:
    """Return the version of a thin wheel. That for one torch names it, so that wheels for several can share a folder;
    one for several has no local part, since package indexes take no such version.

    Raises:
        UsageError: ``version`` is not a valid version.
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
    """Return the requirement of a wheel for ``versions`` of torch: that one, or a range without what is missing.

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
        config: what its pyproject.toml says.
        operators: the files of the operators, by path in the wheel.
        package: the package that PyTorch loads them from, at the end of ``import torch``.
        requires: the requirements in addition to the project's own.
        platform: the platform tag.
        out: the output folder.
        is_editable: whether the project's Python code stays where it is.

    Raises:
        UsageError: hatchling's message about the project's metadata.
        PackError: the wheel cannot be written.
    """
    tag = f"{INTERPRETER}-{ABI}-{platform}"
    kind = "editable" if is_editable else "standard"
    try:
        out.mkdir(parents=True, exist_ok=True)
        # Beside the wheel, so that it is there whole or not at all.
        with TemporaryDirectory(prefix=".graft-", dir=out) as name, _explained(root):
            lay_out_files(Path(name, "operators"), operators)
            for library in Path(name, "operators").rglob("*.so"):
                library.chmod(0o755)  # as torch's own
            project = root or Path(name, "project")
            metadata = _metadata(project, config, package, requires)
            builder = _Builder(project, metadata, Path(name, "operators"), tag)
            wheel = Path(next(builder.build(directory=name, versions=[kind])))
            return wheel.replace(out / wheel.name)
    except OSError as error:
        raise PackError(f"{out}: {error.strerror or error}", todo=remedy(error, out)) from error


def write_sdist(root: Path, config: Mapping[str, Any], out: Path, *, without: Iterable[Path] = ()) -> Path:
    """Write the sdist into ``out``: the files of the project that git does not ignore, ``without`` some folders. Return
    its path.

    Raises:
        UsageError: hatchling's message about the project's metadata.
    """
    changed = copy.deepcopy(dict(config))
    left_out = [f"/{folder.relative_to(root)}" for folder in without if folder.is_relative_to(root)]
    target = _target(changed, "sdist") if left_out else {}
    target["exclude"] = [*target.get("exclude", ()), *left_out]
    with _explained(root):
        builder = SdistBuilder(str(root), metadata=ProjectMetadata(str(root), PluginManager(), changed))
        return Path(next(builder.build(directory=str(out), versions=["standard"])))


@contextmanager
def _explained(root: Path | None) -> Iterator[None]:
    """Raise hatchling's errors about metadata as errors of the user's file. It has no class for them."""
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
    """Return the project's metadata with what the operators need."""
    changed = copy.deepcopy(dict(config))
    project = changed["project"]
    project["dependencies"] = [*project.get("dependencies", ()), *requires]
    project.setdefault("entry-points", {}).setdefault("torch.backends", {})[package] = f"{package}:autoload"
    target = _target(changed, "wheel")
    if not _has_code(root, changed, target):
        target["bypass-selection"] = True
    return ProjectMetadata(str(root), PluginManager(), changed)


def _target(config: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return hatchling's settings for wheels or sdists in ``config``, which are added if there are none."""
    for key in ("tool", "hatch", "build", "targets", kind):
        config = config.setdefault(key, {})
    return config


def _has_code(root: Path, config: Mapping[str, Any], target: Mapping[str, Any]) -> bool:
    """Return whether hatchling knows which Python code goes into the wheel: by its settings, or by the name."""
    if target:
        return True
    metadata = ProjectMetadata(str(root), PluginManager(), dict(config))
    builder = WheelBuilder(str(root), metadata=metadata)
    try:
        return bool(builder.config.default_file_selection_options)
    except ValueError:
        return False
