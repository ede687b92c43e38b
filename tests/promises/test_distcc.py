"""`LAUNCHER=distcc`: other machines compile, here two servers on the loopback address, and the bytes are the same."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from helpers import DERIVED
from place import Place, sha256

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


def test_wheel(plain: Place, base: Path, servers: Servers, tmp_path: Path) -> None:
    place = Place(tmp_path / "place", base, shares=("base", *DERIVED), **servers.variables)
    shutil.copytree(plain.home / "my_ops", place.home / "my_ops")
    done = place.build("--jobs", "4", "--launcher", "distcc")
    assert done.code == 0, done.said
    assert all(servers.compiled()), servers.compiled()
    assert (place.wheel.name, sha256(place.wheel)) == (plain.wheel.name, sha256(plain.wheel))
