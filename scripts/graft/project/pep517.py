"""Build a project: a wheel for the versions of torch that it names, or an editable install for the installed torch.

``python -m graft.project.pep517 FOLDER SETTINGS``: build the operators of an editable install again.
"""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

from ..base.fetch import in_name_of
from ..base.installed import Environment, find_environment, find_site
from ..compose.several import platform_of
from ..core.bugs import say_error
from ..core.console import say
from ..core.errors import GraftError, UsageError
from ..core.files import delete, lay_out_files, require_no_link, write_atomically
from ..core.layout import ABI, DEVELOP, DISTRIBUTION, HOME, TorchVersion
from ..core.places import EDITABLE, note_place
from ..core.wording import spelling
from ..cpp.includes import looked_for
from ..deliver.built import load_built
from ..deliver.shipped.edited import COMMAND, STATE, locked, state_of
from ..deliver.thin import requirement, write_wheel
from ..given import given_as, in_environment, request_of
from ..inputs.native import FOLDERS, load_native
from ..inputs.packages import carried
from ..options import AS_VARIABLES, FOUND, INSTALLED, OPTIONS, Request, Verb
from ..validation import complete, environment_of
from ..verbs import thin_files
from .settings import Project, read_project

_SHIPPED = Path(__file__).resolve().parent.parent / "deliver/shipped"

# A project says what it builds for; variables like GRAFT_JOBS, or settings of the frontend, say how.
_VERB = Verb(
    "wheel", "build a project", "", "pin wheel native jobs launcher cuda_archs cuda_home cxx", FOUND, has_pins=True
)

# The settings that a frontend passes, by option: `pip wheel --config-settings jobs=2`.
ConfigSettings = Mapping[str, Any]


def build_wheel(folder: Path, out: Path, settings: ConfigSettings) -> Path:
    """Build the wheel of the project in ``folder`` into ``out``. Return its path."""
    project = read_project(folder)
    files, deliveries = thin_files(*_request(project, settings))
    versions = [delivery.layout.pin for delivery in deliveries]
    return write_wheel(
        folder,
        project.config,
        files,
        package=project.package,
        requires=[requirement(versions)],
        platform=platform_of(project.package, files),
        out=out,
    )


def _given(settings: ConfigSettings) -> Request:
    """Read the settings of a frontend, and the environment variables. A setting that is repeated is a list."""
    known = [name for name in _VERB.takes.split() if name != "native"]
    keys = [each.key for name in known for each in OPTIONS[name].names]
    chosen = {name.replace("-", "_"): value for name, value in settings.items()}
    if unknown := [name for name, key in zip(settings, chosen, strict=True) if key not in keys]:
        options = ", ".join(name.replace("_", "-") for name in known)
        raise UsageError(f"--config-settings {unknown[0]}: no such option", todo=f"use one of: {options}")
    texts = {key: value if isinstance(value, str) else " ".join(map(str, value)) for key, value in chosen.items()}
    return request_of({**in_environment(), **given_as(texts, lambda name: f"--config-settings {name.flag[2:]}")})


def _request(project: Project, settings: ConfigSettings) -> tuple[Request, str, list[TorchVersion]]:
    """Return the request, the name of the package, and the versions of torch. The installed torch is the base for its
    own version, which is also the default.
    """
    request = replace(_given(settings), native=project.natives)
    named = request.pins or project.torches
    if request.wheel:
        named = (in_name_of(request.wheel)[0],)
    # pip's isolated builds, too, find the torch of the environment that pip installs into.
    environment = None if request.wheel else environment_of(sys.executable)
    there = environment.version if environment else None
    versions = [TorchVersion(INSTALLED if each == there else each) for each in named]
    if not versions and there:
        versions = [TorchVersion(INSTALLED)]
    if there and INSTALLED not in versions:
        say(f"this builds for torch {', '.join(versions)}; the installed torch is {there}")
    request = complete(_VERB, replace(request, pin=TorchVersion(" ".join(versions))), Namespace())
    return request, project.package, list(request.pins)


def build_editable(folder: Path, out: Path, settings: ConfigSettings) -> Path:
    """Build a wheel that refers to a folder with the operators, for the installed torch. Return its path."""
    project, (packages, site) = read_project(folder), find_site(sys.executable)
    if site is None:
        raise UsageError(
            f"{folder}: an editable install is for the installed torch, which this build does not see",
            cause=f"{packages} has no torch; uv hides it from isolated builds",
            todo="use --no-build-isolation, or name versions in [tool.graft] torch and install without -e",
        )
    environment = find_environment(sys.executable)
    place = _place(project, environment)
    place.mkdir(parents=True, exist_ok=True)
    with locked(str(place), f"another process builds the operators of {folder}; waiting for it to end"):
        files = build_in_place(project, environment, settings)
    note_place(EDITABLE, place)
    return write_wheel(
        folder,
        project.config,
        {f"_{project.name}_operators.pth": f"{place}\n".encode()},
        package=project.package,
        # Without Graft, an edited source could not be compiled.
        requires=[requirement([environment.version]), DISTRIBUTION],
        platform=platform_of(project.package, files),
        out=out,
        is_editable=True,
    )


def _place(project: Project, environment: Environment) -> Path:
    """Return the folder of the operators of an editable install. Links are refused: the folder is emptied, and the
    project may be somebody else's repository.
    """
    key = sha256(str(environment.site).encode()).hexdigest()[:8]
    place = project.folder / f"build/graft-{ABI}-{key}"
    for folder in (place.parent, place, place / project.package):
        require_no_link(folder)
    return place


def build_in_place(project: Project, environment: Environment, settings: ConfigSettings) -> dict[str, bytes]:
    """Build the operators for the torch of ``environment``, and lay them out. Return their files. The caller holds the
    lock on their folder.
    """
    place, package = _place(project, environment), project.package
    read = _read(project, environment)
    before = state_of(*read)
    delete(place / package / STATE)
    try:
        files, (thin,) = thin_files(_request(project, settings)[0], package, [TorchVersion(INSTALLED)], kind=DEVELOP)
    except GraftError as error:
        _write_state(place / package, read, before, str(error))
        raise
    command = [sys.executable, "-m", "graft.project.pep517", str(project.folder), json.dumps(settings)]
    files[f"{package}/{COMMAND}"] = json.dumps({"command": command, "home": str(HOME)}, indent=1).encode()
    files[f"{package}/edited.py"] = (_SHIPPED / "edited.py").read_bytes()
    links = _links(project)
    lay_out_files(place, {name: content for name, content in files.items() if name not in links})
    for name, path in links.items():  # lay_out_files has deleted them
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).symlink_to(path)
    built, work = load_built(thin.layout, thin.kind), thin.layout.work
    elsewhere = [os.path.normpath(work / name) for name in built.outside.hashes] if built else []
    after = before | state_of([], [], elsewhere)
    if built and built.outside.is_as_read(work):  # else the next import builds again
        _write_state(place / package, [*read[:-1], read[-1] + elsewhere], after)
    return files


def _links(project: Project) -> dict[str, Path]:
    """Return the user's files of packages that are delivered beside torch, by path below site-packages."""
    packages = [native.settings.packages for native in map(load_native, project.natives)]
    return {name: path for each in packages for name, path in carried(each).items()}


def _read(project: Project, environment: Environment) -> list[list[str]]:
    """Return the files and folders that a build is known to read before it starts: the arguments of ``state_of``."""
    others = {environment.site / "torch/version.py"}
    for native in map(load_native, project.natives):
        code = native.cplusplus
        others |= {*looked_for(native.path, code, native.searched, native.place), *native.inputs}
        # A new source may match a glob.
        others |= {path.parent for path in native.settings.sources}
        others |= {path.parent for each in native.settings.extensions for path in each.sources}
    others |= {path.parent for path in _links(project).values()}
    return [list(map(str, project.natives)), list(FOLDERS), sorted(map(str, others))]


def _write_state(folder: Path, read: list[list[str]], files: Mapping[str, list[int]], errors: str = "") -> None:
    """Write the errors of a build, and the state of the files that it read."""
    write_atomically(folder / STATE, json.dumps({"read": read, "files": files, "errors": errors}, indent=1))


def main(folder: str, settings: str) -> int:
    """Build the operators of an editable install again, with the settings of its first build. Return the exit code."""
    with spelling(AS_VARIABLES):
        try:
            build_in_place(read_project(Path(folder)), find_environment(sys.executable), json.loads(settings))
        except Exception as error:
            return say_error(error)
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
