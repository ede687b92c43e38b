"""The stub of an extension: a small library in its place that opens the extension for the torch of the process. It is
C++ and acts when it is opened, since ``torch.ops.load_library`` opens it without Python's import.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from ..base.base import Base
from ..core.elf import ElfFile
from ..core.process import UNTRANSLATED, run
from ..inputs.toolchain import Toolchain

_SOURCE = Path(__file__).with_suffix(".cpp")

# The folder in a package with the extensions for each torch.
EXTENSIONS = "extensions"

# The stub is linked to no library, so it needs no version of one. Its calls are resolved in the process.
_FLAGS = (
    *("-O2", "-fPIC", "-fvisibility=hidden", "-fno-stack-protector", "-fno-exceptions", "-fno-rtti"),
    *("-shared", "-s", "-nostdlib", "-Wl,--unresolved-symbols=ignore-all", "-Wl,--build-id=sha1", "-Wl,-z,now"),
)


def folder_for(package: str, base: Base) -> str:
    """Return the folder in a package with the extensions for a torch. Stubs find it by libtorch_cpu.so's build-id."""
    return f"{package}/{EXTENSIONS}/{ElfFile(base.libraries / 'libtorch_cpu.so').build_id}"


def extension_stub(toolchain: Toolchain, folder: Path, package: str, place: str) -> Path:
    """Compile the stub of the extension at ``place`` below site-packages into ``folder``. Return the file. ``package``
    has the extensions that the stub opens.
    """
    init = f"PyInit_{Path(place).name.partition('.')[0]}"
    texts = {
        "GRAFT_PLACE": place,
        "GRAFT_UP": "../" * place.count("/"),
        "GRAFT_EXTENSIONS": f"{package}/{EXTENSIONS}",
        "GRAFT_INIT_NAME": init,
        "GRAFT_REFUSED": f"{package} was not built for the torch that is here; install one for it",
    }
    macros = [f"-DGRAFT_INIT={init}", *(f'-D{name}="{text}"' for name, text in texts.items())]
    command = [toolchain.compiler, *_FLAGS, *macros]
    content = hashlib.sha256(
        repr((command, toolchain.description, _SOURCE.read_text(encoding="utf-8"))).encode()
    ).hexdigest()
    target = folder / f"{content[:16]}.so"
    if not target.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        partial = target.with_suffix(".partial")
        run([*command, _SOURCE, "-o", partial, f"-Wl,-soname,{Path(place).name}"], env=UNTRANSLATED)
        partial.replace(target)
    return target
