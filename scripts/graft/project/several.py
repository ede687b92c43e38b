"""One package with the operators for several builds of torch, of which each has a folder."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from packaging.version import Version

# The list of the builds, which the package reads when torch is imported.
BUILDS = "builds.json"
# The folder of the files that are the same for all.
SHARED = "shared"

# Releases of PyTorch have had at most this many bug-fix releases, in addition to the first, since 2.0.
_FIXES = 2


def folder_of(requires: str) -> str:
    """Return the folder of a build: ``torch_2_13_0_cpu`` for ``2.13.0+cpu``."""
    return f"torch_{requires.replace('.', '_').replace('+', '_')}"


def together(package: str, builds: Sequence[Mapping[str, bytes]]) -> dict[str, bytes]:
    """Return the files of one package for all of ``builds``, each of which is a package for one torch.

    Files outside of the folders of builds are those of the last; the stubs of the newest torch stand for all.
    """
    files: dict[str, bytes] = {}
    listed, contents = [], []
    for build in builds:
        (entry,) = json.loads(build[f"{package}/{BUILDS}"])
        own = f"{package}/{entry['folder']}/"
        listed.append(entry)
        contents.append({name.removeprefix(own): text for name, text in build.items() if name.startswith(own)})
        files |= {name: text for name, text in build.items() if not name.startswith(own)}
    shared = {name: text for name, text in contents[0].items() if all(each.get(name) == text for each in contents)}
    if len(builds) == 1:
        shared = {}
    files |= {f"{package}/{SHARED}/{name}": text for name, text in shared.items()}
    for entry, content in zip(listed, contents, strict=True):
        own = {name: text for name, text in content.items() if name not in shared}
        files |= {f"{package}/{entry['folder']}/{name}": text for name, text in own.items()}
    files[f"{package}/{BUILDS}"] = json.dumps(listed, indent=1).encode()
    return files


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
