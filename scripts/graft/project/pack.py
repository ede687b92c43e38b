"""Write the wheel and the sdist of a project, with hatchling: its metadata, its Python code, and its operators."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder
from hatchling.metadata.core import ProjectMetadata
from hatchling.plugin.manager import PluginManager

from ..core.errors import UsageError


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


def write_wheel(
    root: Path,
    config: Mapping[str, Any],
    operators: Path,
    *,
    package: str,
    requires: Iterable[str],
    tag: str,
    out: Path,
    is_editable: bool = False,
) -> Path:
    """Write the wheel into ``out``. Return its path.

    Args:
        root: the folder of the project.
        config: what pyproject.toml says.
        operators: a folder with the files of the operators, at their paths in the wheel.
        package: the package that PyTorch loads them from, at the end of ``import torch``.
        requires: the requirements in addition to the project's own.
        tag: the compatibility tag.
        out: an existing folder.
        is_editable: whether the project's Python code stays where it is.

    Raises:
        UsageError: hatchling's message about the project's metadata.
    """
    metadata = _metadata(root, config, package, requires)
    with _explained(root):
        builder = _Builder(root, metadata, operators, tag)
        return Path(next(builder.build(directory=str(out), versions=["editable" if is_editable else "standard"])))


def write_sdist(root: Path, config: Mapping[str, Any], out: Path) -> Path:
    """Write the sdist into ``out``: the files of the project that git does not ignore. Return its path.

    Raises:
        UsageError: hatchling's message about the project's metadata.
    """
    with _explained(root):
        builder = SdistBuilder(str(root), metadata=ProjectMetadata(str(root), PluginManager(), dict(config)))
        return Path(next(builder.build(directory=str(out), versions=["standard"])))


@contextmanager
def _explained(root: Path) -> Iterator[None]:
    """Raise hatchling's errors about metadata as errors of the user's file. It has no class for them."""
    try:
        yield
    except (ValueError, TypeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise UsageError(f"{root / 'pyproject.toml'}: {error}", todo="correct its table [project]") from error


def _metadata(
    root: Path, config: Mapping[str, Any], package: str, requires: Iterable[str]
) -> ProjectMetadata[PluginManager]:
    """Return the project's metadata with what the operators need."""
    changed = copy.deepcopy(dict(config))
    project = changed["project"]
    project["dependencies"] = [*project.get("dependencies", ()), *requires]
    project.setdefault("entry-points", {}).setdefault("torch.backends", {})[package] = f"{package}:autoload"
    target = _target(changed)
    if not _has_code(root, changed, target):
        target["bypass-selection"] = True
    return ProjectMetadata(str(root), PluginManager(), changed)


def _target(config: dict[str, Any]) -> dict[str, Any]:
    """Return hatchling's settings for wheels in ``config``, which are added if there are none."""
    for key in ("tool", "hatch", "build", "targets", "wheel"):
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
