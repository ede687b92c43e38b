"""One package with the operators for several builds of torch, each in a folder of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ..core.files import files_below

# The list of the builds, which the package reads when torch is imported.
BUILDS = "builds.json"
# The folder of the files that are the same for all builds.
SHARED = "shared"


def folder_of(requires: str) -> str:
    """Return the folder of a build: ``torch_2_13_0_cpu`` for ``2.13.0+cpu``."""
    return f"torch_{requires.replace('.', '_').replace('+', '_')}"


def is_library(name: str) -> bool:
    """Return whether a file is a library, which may have a version: ``libfoo-1a2b3c4d.so.1``."""
    return ".so" in Path(name).suffixes


def together(package: str, builds: Sequence[Mapping[str, bytes]]) -> dict[str, bytes]:
    """Merge ``builds``, each a package for one torch, into the files of one package.

    Files outside of the builds' folders are taken from the last build, so the stubs are those of the newest torch.
    """
    files: dict[str, bytes] = {}
    listed, contents = [], []
    for build in builds:
        (entry,) = json.loads(build[f"{package}/{BUILDS}"])
        own = f"{package}/{entry['folder']}/"
        listed.append(entry)
        contents.append({name.removeprefix(own): text for name, text in build.items() if name.startswith(own)})
        files |= {name: text for name, text in build.items() if not name.startswith(own)}
    # Libraries stay in the folders of builds, where they find each other.
    alike = {name for name in contents[0] if all(each.get(name) == contents[0][name] for each in contents)}
    shared = {name: contents[0][name] for name in alike if len(builds) > 1 and not is_library(name)}
    files |= {f"{package}/{SHARED}/{name}": text for name, text in shared.items()}
    for entry, content in zip(listed, contents, strict=True):
        files |= {f"{package}/{entry['folder']}/{name}": content[name] for name in content.keys() - shared.keys()}
    files[f"{package}/{BUILDS}"] = json.dumps(listed, indent=1).encode()
    return files


def read_together(package: str, folders: Sequence[Path]) -> dict[str, bytes]:
    """Merge the packages in ``folders`` into the files of one package."""
    builds = [{name.as_posix(): (folder / name).read_bytes() for name in files_below(folder)} for folder in folders]
    return together(package, builds)


def platform_of(package: str, files: Mapping[str, bytes]) -> str:
    """Return the platform tag of a package: the newest that one of its builds needs."""
    platforms: list[str] = [build["platform"] for build in json.loads(files[f"{package}/{BUILDS}"])]
    return max(platforms, key=lambda name: [int(number) for number in re.findall(r"_(\d+)(?=_)", name)])
