"""Read a project's pyproject.toml: the table ``[tool.graft]``, and the metadata of ``[project]``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from ..core.keys import FILE
from ..deliver.thin import is_own_name
from ..inputs.native import load_native, require_native
from ..inputs.pyproject import faults_of, listed, natives_of, read_toml, table_in

_EXAMPLE = '[tool.graft]\nnative = "native"   # the folder with native_functions.yaml\ntorch = "2.13.0"'


@dataclass(frozen=True)
class Project:
    """A project.

    Args:
        folder: the folder of its pyproject.toml.
        config: the content of that file.
        natives: its native folders.
        torches: the versions of torch that it is built for; empty for the installed one, or the first available.
    """

    folder: Path
    config: Mapping[str, Any]
    natives: tuple[Path, ...]
    torches: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of the package with its operators: ``my_ops`` of the project ``my-ops``."""
        return package_of(self.config["project"]["name"])

    @property
    def has_own_package(self) -> bool:
        """Whether the project has Python code under that name."""
        places = (self.folder / name for name in (self.name, f"src/{self.name}"))
        return any((place / "__init__.py").is_file() or place.with_suffix(".py").is_file() for place in places)

    @property
    def package(self) -> str:
        """The package of the operators. If the project has its own under ``name``, this one is ``_name``."""
        return f"_{self.name}" if self.has_own_package else self.name

    @property
    def left_out(self) -> list[Path]:
        """Separate native folders below the project's that are not a part of it: no source includes a header there."""
        loaded = [load_native(native) for native in self.natives]
        others = {native.path / other for native in loaded for other in native.others}
        read = [path for native in loaded for path in native.inputs]
        return sorted(each for each in others if not any(path.is_relative_to(each) for path in read))

    def require_whole(self) -> None:
        """Check that the sources of extensions and packages are below the project's folder: an sdist has nothing else.

        Raises:
            UsageError: names the first source that is not.
        """
        for settings in (load_native(native).settings for native in self.natives):
            places = [("extensions", path) for each in settings.extensions for path in each.sources]
            places += [("packages", path) for each in settings.packages.values() for path in each]
            for key, path in places:
                if not path.is_relative_to(self.folder.resolve()):
                    what = f"{path} is not below {self.folder}, so an sdist would not have it"
                    raise UsageError(settings.fault(key, what), todo="build a wheel, or copy the tree into the project")


def package_of(name: str) -> str:
    """Return the name that the package of a project has: ``my_ops`` for ``my-ops``."""
    return re.sub(r"[-_.]+", "_", name).lower()


def read_project(folder: Path) -> Project:
    """Read ``folder/pyproject.toml``, and check the keys that Graft uses."""
    file = folder / FILE
    if not file.is_file():
        raise UsageError(f"{file}: no such file", todo="`graft new --project` writes one")
    config = read_toml(file)
    settings, project = table_in(config), config.get("project", {})
    faults = faults_of(file, settings)
    if not isinstance(project.get("name"), str):
        faults.append(f"{file}: [project] has no name")
    elif not is_own_name(package_of(project["name"])):
        faults.append(f"{file}: [project] name is {project['name']}, which no package of your own can have")
    if faults:
        raise UsageError("\n".join(faults), todo=f"write\n{_EXAMPLE}")
    natives = tuple(natives_of(folder, settings))
    require_native(natives, f"{file}: [tool.graft] native: ")
    return Project(folder, config, natives, tuple(listed(settings.get("torch", ()))))
