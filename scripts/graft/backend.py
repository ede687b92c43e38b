"""The build backend of projects (PEP 517, PEP 660): ``build-backend = "graft.backend"``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from .core.bugs import say_error
from .core.wording import spelling
from .deliver.thin import write_sdist
from .options import AS_VARIABLES
from .project import pep517
from .project.pep517 import ConfigSettings
from .project.settings import read_project


def build_wheel(
    wheel_directory: str, config_settings: ConfigSettings | None = None, metadata_directory: str | None = None
) -> str:
    """Build the wheel of the project in the current folder. Return its file name."""
    return _named(lambda: pep517.build_wheel(Path.cwd(), Path(wheel_directory), config_settings or {}))


def build_editable(
    wheel_directory: str, config_settings: ConfigSettings | None = None, metadata_directory: str | None = None
) -> str:
    """Build an editable wheel: importing it rebuilds the operators if sources were edited. Return its file name."""
    return _named(lambda: pep517.build_editable(Path.cwd(), Path(wheel_directory), config_settings or {}))


def build_sdist(sdist_directory: str, config_settings: ConfigSettings | None = None) -> str:
    """Build the sdist. Return its file name."""

    def build() -> Path:
        project = read_project(Path.cwd())
        project.require_whole()
        return write_sdist(project.folder, project.config, Path(sdist_directory), without=project.left_out)

    return _named(build)


def get_requires_for_build_editable(config_settings: ConfigSettings | None = None) -> list[str]:
    """Return the additional requirements of an editable build: hatchling writes the .pth file with ``editables``."""
    from hatchling.builders.constants import EDITABLES_REQUIREMENT

    return [EDITABLES_REQUIREMENT]


def _named(build: Callable[[], Path]) -> str:
    """Return the name of the file that ``build`` makes. Print an error and exit, without a traceback."""
    with spelling(AS_VARIABLES):
        try:
            return build().name
        except Exception as error:
            raise SystemExit(say_error(error)) from None
