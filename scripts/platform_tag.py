"""The platform tag that a wheel with the new libraries may claim."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from auditwheel.architecture import Architecture
from auditwheel.libc import Libc
from auditwheel.policy import WheelPolicies
from packaging.utils import parse_wheel_filename

from .symbols import ElfFile


def platform_tag(base_wheel: Path, libraries: Iterable[Path]) -> str:
    """The base's platform tag, or a newer one if ``libraries`` need newer symbols (auditwheel's policies).

    A manylinux tag promises which versions of glibc's and libstdc++'s symbols are enough; PEP 600.
    """
    policies = WheelPolicies(libc=Libc.GLIBC, arch=Architecture.x86_64)
    needed = {
        str(library): {
            f"{name}_{version}" for name, versions in ElfFile(library).needed_versions().items() for version in versions
        }
        for library in libraries
    }
    ours = policies.versioned_symbols_policy({name: versions for name, versions in needed.items() if versions})
    _, _, _, tags = parse_wheel_filename(base_wheel.name)
    base_platforms = [tag.platform for tag in tags]
    base = min((policy for policy in policies if policy.name in base_platforms), key=lambda policy: policy.priority)
    # A higher priority is an older platform.
    return str(base.name if base.priority <= ours.priority else ours.name)
