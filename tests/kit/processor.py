"""The processor that figures apply to."""

from __future__ import annotations

import os
import re
from pathlib import Path

# The features that decide which kernels run, ours and oneDNN's, by their names in Linux.
_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8", "amx_fp16", "sve")


def machine() -> str:
    """Return the number of cores that this process may use, and the processor's name."""
    return f"{len(os.sched_getaffinity(0))} cores of {_name()}"


def describe_processor() -> str:
    """Return its name and which of these features it has."""
    about = _about()
    features = [name.upper() for name in _FEATURES if name in (about.get("flags") or about.get("Features", "")).split()]
    family = f"family {about.get('cpu family')}, model {about.get('model')}"
    return f"{_name()} ({family}): {', '.join(features) or 'no wide vectors'}"


def _name() -> str:
    return _about().get("model name", "unknown processor")


def _about() -> dict[str, str]:
    info = Path("/proc/cpuinfo")
    text = info.read_text(encoding="utf-8") if info.is_file() else ""
    return dict(re.findall(r"^([^\t:]+)\s*: (.*)$", text, re.M))
