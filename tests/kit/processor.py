"""The processor that figures apply to."""

from __future__ import annotations

import re
from pathlib import Path

# The features that decide which kernels run, ours and oneDNN's, by their names in Linux.
_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8", "amx_fp16")


def describe_processor() -> str:
    """Return its name and which of these features it has."""
    info = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    about = dict(re.findall(r"^([^\t:]+)\s*: (.*)$", info, re.M))
    features = [name.upper() for name in _FEATURES if name in about.get("flags", "").split()]
    name = f"{about.get('model name', 'unknown')} (family {about.get('cpu family')}, model {about.get('model')})"
    return f"{name}: {', '.join(features) or 'no AVX2'}"
