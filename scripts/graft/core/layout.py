"""The layout of folders. Builds write below ``HOME``, except for the wheel, and for files that all builds of a user
share, which are below ``store()``.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from .architecture import machine_of
from .cuda_settings import NOT_SET, CudaSettings
from .errors import UsageError
from .extra_flags import NO_EXTRA, ExtraFlags
from .folders import shown

# The name under which pip installs this package.
DISTRIBUTION = "torch-graft"
# The folder of this package, and its parent folder, from which Python imports it.
PACKAGE = Path(__file__).resolve().parents[1]
PACKAGES = PACKAGE.parent
# Whether this package is used in its checkout, rather than installed.
IS_CHECKOUT = (PACKAGES.parent / "scripts/environment.py").is_file()
# The checkout, or the part of it that is installed with this package: pins, and the tests of any native folder.
REPOSITORY = PACKAGES.parent if IS_CHECKOUT else PACKAGE / "repository"


def store() -> Path:
    """Return the folder that all builds of a user share, whatever their clone, checkout or environment: base wheels,
    objects, the builder's environments, and data read once from each torch. It is ``GRAFT_HOME``, or a folder below
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
    except FileNotFoundError:  # it was deleted: an error only where it is used
        return Path()


# The folder of builds: work folders, and environments for tests.
HOME = REPOSITORY / "build" if IS_CHECKOUT and not os.environ.get("GRAFT_HOME") else store()
# Installed pins are not written to: `graft pin` copies them.
OWN_PATCHES = REPOSITORY / "patches" if IS_CHECKOUT else HOME / "patches"
PATCHES = OWN_PATCHES if OWN_PATCHES.is_dir() else REPOSITORY / "patches"
# The default output folder of wheels.
DIST = (REPOSITORY if IS_CHECKOUT else _working_folder()) / "dist"
# The bytecode cache of the builder and of the tests that it runs.
BYTECODE = HOME / "bytecode"

# In a work folder: the folder that compilers search first for headers, and in it the folder of the native folders' C++,
# with the same path as ATen's own.
SEARCHED = Path("src")
SOURCES = SEARCHED / "ATen/native"

# The interpreter that builds run on and build for, and its ABI. Each has its own bases, objects and wheels.
_PREFIX = "cp" if sys.implementation.name == "cpython" else sys.implementation.name
INTERPRETER = f"{_PREFIX}{sys.version_info[0]}{sys.version_info[1]}"
ABI = f"{INTERPRETER}{sys.abiflags}"


# Kinds of builds that are not shipped: with sanitizers, for this processor only, and with debug information; the same
# for a running process: one that runs under a sanitizer, any other, and with debug information.
SANITIZED, DEVELOP, DEBUG = "sanitized", "develop", "debug"
LOADED_SANITIZED, LOADED, LOADED_DEBUG = "loaded-sanitized", "loaded", "loaded-debug"


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

    The text is one name if this folder exists. It is also one name if no part exists, and some part behind a space does
    not begin with ``/``, ``~`` or ``.``.
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
    """Return the absolute path of ``text``, with ``~`` expanded. An unknown ``~name`` is kept."""
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
        pin: the version of the PyTorch to build on.
        natives: the native folders.
        out: the folder for the wheel.
        kind: the kind of build: empty for what ships, or ``SANITIZED``, ``DEVELOP``,
            ``DEBUG``, ``LOADED``, ``LOADED_DEBUG`` or ``LOADED_SANITIZED``.
        pin_folder: the folder of the pin file, the series and the patches; None for the release's in ``PATCHES``.
        interpreter: the ABI of the interpreter to build for, for example ``cp312``; other values than this process's
            are for reading only.
        installed: identifies the installed torch used as the base; empty for a wheel.
        launcher: the command put before each compiler, for example ccache.
        cuda: the user's settings for CUDA.
        cxx: the C++ compiler.
        extra: the user's additional compiler flags.
        owner: identifies the builds that share a work folder; empty if the paths of the native folders identify them.
        declared: entries of native_functions.yaml for operators that are defined elsewhere, by operator.
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
    declared: Mapping[str, str] = field(default_factory=dict)

    def sanitized(self) -> Layout:
        """Return the layout of the same build with sanitizers. It shares only the base."""
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
        """The folder of the pin file, the series and the patches."""
        return self.pin_folder or PATCHES / self.pin.release

    @property
    def pin_build(self) -> Path:
        """The folder that all builds for one pin, one Python and one architecture share."""
        machine = "" if self.machine == "x86_64" else self.machine
        return HOME / self.pin / "-".join(filter(None, (self.interpreter, machine, self.installed)))

    @property
    def base(self) -> Path:
        """The folder of links to the base wheel and its unpacked tree, and of data derived from them."""
        return self.pin_build / "base"

    @property
    def own_objects(self) -> Path:
        """The folder of objects that only this work folder can use."""
        return self.work / "store"

    @property
    def work(self) -> Path:
        """The folder of everything that is built from the native folders.

        All work folders have the same depth: compilers write relative paths into objects, and the same input must give
        the same bytes.
        """
        return self.pin_build / f"work-{self.name}{f'-{self.kind}' if self.kind else ''}"

    @property
    def commands(self) -> Path:
        """The folder with compile_commands.json, for editors. All kinds of builds of the native folders share it."""
        return self.pin_build / f"commands-{self.name}"

    @property
    def sources(self) -> Path:
        """The folder of copies of the native folders' C++, as read when the build began. Compilers see these paths."""
        return self.work / SOURCES

    @property
    def generated(self) -> Path:
        """The folder of the code that torchgen generates from the native folders."""
        return self.work / "generated"

    @property
    def objects(self) -> Path:
        """The folder of object files and new libraries."""
        return self.work / "objects"
