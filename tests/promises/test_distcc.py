"""`LAUNCHER=distcc`: other machines compile, here two servers on the loopback address, and the bytes are the same."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from graft.core.layout import REPOSITORY, store
from helpers import DERIVED
from place import Place, sha256
from test_source_tree import OLDEST

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not shutil.which("distccd"), reason="distcc is not installed"),
]

SERVERS = 2


def free_port() -> int:
    with socket.socket() as at:
        at.bind(("127.0.0.1", 0))
        port: int = at.getsockname()[1]
        return port


class Servers:
    """Two distccd: the variables for their clients, and how many sources each compiled."""

    def __init__(self, folder: Path) -> None:
        ports = [free_port() for _ in range(SERVERS)]
        self._logs = [folder / f"{port}.log" for port in ports]
        self.variables = {
            "DISTCC_HOSTS": " ".join(f"127.0.0.1:{port}/2" for port in ports),
            "DISTCC_FALLBACK": "0",
            "DISTCC_DIR": str(folder / "distcc"),
        }
        (folder / "distcc").mkdir()
        self.running = [
            subprocess.Popen(
                [
                    *("distccd", "--no-detach", "--daemon", "--listen", "127.0.0.1", "--allow", "127.0.0.1"),
                    *("--jobs", "2", "--port", str(port), "--log-file", log, "--log-level", "info"),
                ]
            )
            for port, log in zip(ports, self._logs, strict=True)
        ]

    def compiled(self) -> list[int]:
        return [log.read_text(encoding="utf-8").count("COMPILE_OK") for log in self._logs]


@pytest.fixture
def servers() -> Iterator[Servers]:
    with TemporaryDirectory() as folder:
        Path(folder).chmod(0o777)  # servers that root starts run as another user
        found = Servers(Path(folder))
        yield found
        for each in found.running:
            each.terminate()
            each.wait()


def hashes(paths: Iterable[Path]) -> dict[str, str]:
    return {path.name: sha256(path) for path in paths}


def test_wheel(plain: Place, base: Path, servers: Servers, tmp_path: Path) -> None:
    place = Place(tmp_path / "place", base, shares=("base", *DERIVED), **servers.variables)
    shutil.copytree(plain.home / "my_ops", place.home / "my_ops")
    done = place.build("--jobs", "4", "--launcher", "distcc")
    assert done.code == 0, done.said
    assert all(servers.compiled()), servers.compiled()
    assert hashes([place.wheel]) == hashes([plain.wheel])


def test_source_build(servers: Servers) -> None:
    """The part of a source build that compiles the operators."""
    command = [sys.executable, "-m", "graft", "check-source", "--pin", OLDEST, "--native", REPOSITORY / "native"]
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    check = partial(subprocess.run, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    done = check(command, env=variables)
    if "fetch the sources: failed" in done.stderr:
        pytest.skip(f"the sources of PyTorch {OLDEST} cannot be downloaded here")
    assert done.returncode == 0, done.stderr
    names = [path.name for folder in ("native", "native/cpu") for path in (REPOSITORY / folder).glob("*.cpp")]
    built = [path for name in names for path in (store() / OLDEST / "pytorch/build").rglob(f"{name}*.o")]
    before = hashes(built)
    assert len(before) > len(names)
    for path in built:
        path.unlink()
    done = check([*command, "--jobs", "4", "--launcher", "distcc"], env=variables | servers.variables)
    assert done.returncode == 0, done.stderr
    assert sum(servers.compiled()) == len(built)
    assert hashes(built) == before
