"""Where everything lies. All that a build makes is below ``build/`` in the repository, but for the wheel."""

from __future__ import annotations

import hashlib
import shlex
import sys
from dataclasses import dataclass, replace
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent.parent

# The interpreter that this process runs on and builds for: bases, objects and wheels of different ones are kept apart.
_PREFIX = "cp" if sys.implementation.name == "cpython" else sys.implementation.name
INTERPRETER = f"{_PREFIX}{sys.version_info[0]}{sys.version_info[1]}"


# Kinds of builds that others than users of a wheel run: with sanitizers, for this processor alone, for a debugger.
SANITIZED, DEVELOP, DEBUG = "sanitized", "develop", "debug"


def native_folders(text: str) -> tuple[Path, ...]:
    """The folders that ``NATIVE`` names, separated by spaces; one whose own name holds a space may be quoted."""
    try:
        words = [] if expanded(text).is_dir() else shlex.split(text)
    except ValueError:  # a quote without its end
        words = []
    return tuple(expanded(word) for word in words or [text])


def expanded(text: str | Path) -> Path:
    """The absolute path that a user means, who may write ``~`` for a home; the ``~name`` of nobody stays as it is."""
    try:
        return Path(text).expanduser().resolve()
    except RuntimeError:
        return Path(text).resolve()


@dataclass(frozen=True)
class Layout:
    """The folders of one build.

    Args:
        pin: the pinned PyTorch, as the version of its wheel, such as ``2.13.0+cpu``.
        natives: the native folders.
        out: where the wheel goes.
        kind: of the build: empty for what ships, or ``SANITIZED``, ``DEVELOP``, ``DEBUG``.
        pins: the folder of all pins; None for the repository's.
        interpreter: what the build is for, such as ``cp312``; another one than this process's only to look at.
        installed: tells the installed torch that is built upon from others; empty for a wheel.
        release: the release whose patches are taken; empty for that of ``pin``.
    """

    pin: str
    natives: tuple[Path, ...]
    out: Path
    kind: str = ""
    pins: Path | None = None
    interpreter: str = INTERPRETER
    installed: str = ""
    release: str = ""

    def sanitized(self) -> Layout:
        """The folders of the same build with sanitizers, which shares only the base with it."""
        return replace(self, out=REPOSITORY / f"build/sanitized/{self.name}", kind=SANITIZED)

    @property
    def native(self) -> Path:
        """The first native folder, which new operators are written into."""
        return self.natives[0]

    @property
    def title(self) -> str:
        """The native folders, as messages name them."""
        return " ".join(map(str, self.natives))

    @property
    def name(self) -> str:
        """Tells the builds of different native folders apart."""
        return hashlib.sha256("\0".join(map(str, self.natives)).encode()).hexdigest()[:12]

    @property
    def patches(self) -> Path:
        """The pin file, the series and the patches."""
        return (self.pins or REPOSITORY / "patches") / (self.release or self.pin.partition("+")[0])

    @property
    def pin_build(self) -> Path:
        """What the builds on one pin and one Python share."""
        name = f"{self.interpreter}-{self.installed}" if self.installed else self.interpreter
        return REPOSITORY / "build" / self.pin / name

    @property
    def base(self) -> Path:
        """The base wheel, as downloaded and laid out, and what is derived from it alone."""
        return self.pin_build / "base"

    @property
    def work(self) -> Path:
        """What is made of the native folders.

        Every work folder lies equally deep: compilers write relative paths into what they make, and the same input
        must give the same bytes.
        """
        return self.pin_build / f"work-{self.name}{f'-{self.kind}' if self.kind else ''}"

    @property
    def snapshot(self) -> Path:
        """The inputs as they were read when the build began. Nothing after that reads the user's files."""
        return self.work / "snapshot"

    @property
    def sources(self) -> Path:
        """The native folder's C++ at its place in PyTorch's source tree, as compilers are told of it."""
        return self.work / "src/ATen/native"

    @property
    def generated(self) -> Path:
        """What torchgen makes of the native folder."""
        return self.work / "generated"

    @property
    def objects(self) -> Path:
        """Object files and new libraries."""
        return self.work / "objects"
