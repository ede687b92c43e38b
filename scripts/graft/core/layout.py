"""The layout of folders. What a build writes is below ``HOME``, except for the wheel, and for what all builds of a user
share, which is below ``store()``.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from .architecture import machine_of
from .cuda_settings import NOT_SET, CudaSettings
from .errors import UsageError
from .extra_flags import NO_EXTRA, ExtraFlags
from .folders import shown

# The name under which pip installs this package.
DISTRIBUTION = "torch-graft"
# The folder of this package, and the one in which Python finds it.
PACKAGE = Path(__file__).resolve().parents[1]
PACKAGES = PACKAGE.parent
# Whether this package is used in its checkout, rather than installed.
IS_CHECKOUT = (PACKAGES.parent / "scripts/environment.py").is_file()
# The checkout, or the part of it that is installed with this package: pins, and the tests of any native folder.
REPOSITORY = PACKAGES.parent if IS_CHECKOUT else PACKAGE / "repository"


def store() -> Path:
    """Return the folder of what all builds of a user share, whatever their clone, checkout or environment: base wheels,
    objects, the builder's environments, and what is read once of each torch. It is ``GRAFT_HOME``, or a folder below
    XDG_CACHE_HOME or ~/.cache.

    Raises:
        UsageError: no home folder is known.
    """
    given = os.environ.get("GRAFT_HOME")
    caches = Path(os.environ.get("XDG_CACHE_HOME", ""))
    try:
        if given:
            return Path(given).expanduser().absolute()
        return (caches if caches.is_absolute() else Path.home() / ".cache") / "graft"
    except RuntimeError as error:
        what = f"GRAFT_HOME={given}: there is no such user" if given else "this user has no home folder"
        raise UsageError(what, todo="set GRAFT_HOME to the path of a folder for what is built") from error


def _working_folder() -> Path:
    try:
        return Path.cwd()
    except FileNotFoundError:  # it was deleted, which matters only to those who use it
        return Path()


# The folder of what is built: of work folders, and of environments for tests.
HOME = REPOSITORY / "build" if IS_CHECKOUT and not os.environ.get("GRAFT_HOME") else store()
# Installed pins are not written to: `graft pin` copies them.
OWN_PATCHES = REPOSITORY / "patches" if IS_CHECKOUT else HOME / "patches"
PATCHES = OWN_PATCHES if OWN_PATCHES.is_dir() else REPOSITORY / "patches"
# Where wheels go if nothing else is given.
DIST = (REPOSITORY if IS_CHECKOUT else _working_folder()) / "dist"
# The bytecode cache of the builder and of the tests that it runs.
BYTECODE = HOME / "bytecode"

# The folder in a work folder that compilers search first for headers, and that of the native folders' C++ in it: its
# path in PyTorch's source tree.
SEARCHED = Path("src")
SOURCES = SEARCHED / "ATen/native"

# The interpreter that builds run on and build for, and its ABI. Each has its own bases, objects and wheels.
_PREFIX = "cp" if sys.implementation.name == "cpython" else sys.implementation.name
INTERPRETER = f"{_PREFIX}{sys.version_info[0]}{sys.version_info[1]}"
ABI = f"{INTERPRETER}{sys.abiflags}"


# Kinds of builds that are not shipped: with sanitizers, for this processor only, with debug information, for a running
# process, and for one that runs under a sanitizer.
SANITIZED, DEVELOP, DEBUG, LOADED, LOADED_SANITIZED = "sanitized", "develop", "debug", "loaded", "loaded-sanitized"


class TorchVersion(str):
    """A version of torch, as ``PIN``, wheels and installed packages have it, for example ``2.13.0+cpu``."""

    __slots__ = ()

    @property
    def release(self) -> str:
        """The release, for example ``2.13.0``."""
        return self.partition("+")[0]

    @property
    def local(self) -> str:
        """The variant of that release: ``cpu``, ``cu130``, ``source.`` and a hash; empty for the one on PyPI."""
        return self.partition("+")[2]


def native_folders(text: str) -> tuple[Path, ...]:
    """Split ``NATIVE`` into folders at spaces. Names that contain spaces may be quoted; they must be if others follow.

    Text is one name if it is that of a folder, or if no part of it is, and one behind a space is no absolute path.
    """
    try:
        words = [] if expanded(text).is_dir() else shlex.split(text)
    except ValueError:  # an unclosed quote
        words = []
    are_new = not any(expanded(word).is_dir() for word in words)
    if are_new and any(word[:1] not in ("/", "~", ".") for word in words[1:]):
        words = []
    return tuple(expanded(word) for word in words or [text])


def expanded(text: str | Path) -> Path:
    """Return the absolute path of ``path``, with ``~`` expanded. An unknown ``~name`` is kept."""
    try:
        return Path(text).expanduser().resolve()
    except RuntimeError:
        return Path(text).resolve()
    except FileNotFoundError as error:
        what = f"{text}: the working folder was deleted"
        raise UsageError(what, todo="change to another, or write the whole path") from error


@dataclass(frozen=True)
class Layout:
    """The folders of one build.

    Args:
        pin: the version of the PyTorch that is built on.
        natives: the native folders.
        out: the folder for the wheel.
        kind: the kind of build: empty for what ships, or ``SANITIZED``, ``DEVELOP``,
            ``DEBUG``, ``LOADED`` or ``LOADED_SANITIZED``.
        pin_folder: the pin file, the series and the patches; None for the repository's of that release.
        interpreter: the ABI of the interpreter to build for, for example ``cp312``; other values than this process's
            are for reading only.
        installed: identifies the installed torch used as the base; empty for a wheel.
        launcher: what is put before each compiler, for example ccache.
        cuda: what the user sets for CUDA.
        cxx: the C++ compiler.
        extra: what the user adds to the flags of compilers.
        owner: identifies the builds that follow each other in one folder, if that is not the path of the native folder.
    """

    pin: TorchVersion
    natives: tuple[Path, ...]
    out: Path
    kind: str = ""
    pin_folder: Path | None = None
    interpreter: str = ABI
    installed: str = ""
    launcher: str = ""
    cuda: CudaSettings = NOT_SET
    cxx: str = "g++"
    extra: ExtraFlags = NO_EXTRA
    owner: str = ""

    def sanitized(self) -> Layout:
        """The layout of the same build with sanitizers. It shares only the base."""
        return replace(self, out=HOME / f"sanitized/{self.name}", kind=SANITIZED)

    @property
    def native(self) -> Path:
        """The first native folder. New operators are written there."""
        return self.natives[0]

    @property
    def title(self) -> str:
        """The native folders, as shown in messages."""
        return " ".join(map(shown, self.natives))

    @property
    def name(self) -> str:
        """Identifies the builds of these native folders."""
        return hashlib.sha256((self.owner or "\0".join(map(str, self.natives))).encode()).hexdigest()[:12]

    @property
    def machine(self) -> str:
        """The architecture that the compiler compiles for, for example ``x86_64``."""
        return machine_of(self.cxx)

    @property
    def patches(self) -> Path:
        """The pin file, the series and the patches."""
        return self.pin_folder or PATCHES / self.pin.release

    @property
    def pin_build(self) -> Path:
        """What all builds for one pin, one Python and one architecture share."""
        machine = "" if self.machine == "x86_64" else self.machine
        return HOME / self.pin / "-".join(filter(None, (self.interpreter, machine, self.installed)))

    @property
    def base(self) -> Path:
        """Links to the base wheel and to what is unpacked of it, and what is derived from that."""
        return self.pin_build / "base"

    @property
    def own_objects(self) -> Path:
        """The objects that are of use in this folder only."""
        return self.work / "store"

    @property
    def work(self) -> Path:
        """What is built from the native folders.

        All work folders have the same depth: compilers write relative paths into objects, and the same input must give
        the same bytes.
        """
        return self.pin_build / f"work-{self.name}{f'-{self.kind}' if self.kind else ''}"

    @property
    def sources(self) -> Path:
        """The C++ of the native folders, as read when the build began. Compilers see these paths."""
        return self.work / SOURCES

    @property
    def generated(self) -> Path:
        """What torchgen generates from the native folder."""
        return self.work / "generated"

    @property
    def objects(self) -> Path:
        """Object files and new libraries."""
        return self.work / "objects"
