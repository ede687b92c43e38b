"""The processor that the figures apply to."""

from __future__ import annotations

from pathlib import Path

# The features that decide which kernels run, ours and oneDNN's, by their names in Linux.
_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_bf16", "amx_int8", "amx_fp16")


def describe_processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """Return its name and which of these features it has."""
    lines = (line.partition(":") for line in cpuinfo.read_text(encoding="utf-8").splitlines())
    about: dict[str, str] = {}
    for key, _, value in lines:
        about.setdefault(key.strip(), value.strip())
    flags = set(about.get("flags", "").split())
    features = ", ".join(feature.upper() for feature in _FEATURES if feature in flags) or "no AVX2"
    name = about.get("model name", "unknown processor")
    return f"{name} (family {about.get('cpu family')}, model {about.get('model')}): {features}"
