"""pip fails during the download of the base wheel: what is reported, what is left, and that the next run continues."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from graft.core.errors import MissingError
from place import Place


class Index(SimpleHTTPRequestHandler):
    """Serves a folder as a package index. While ``is_dying`` it closes the connection during a wheel, and counts."""

    is_dying = False
    hung_up = 0

    def do_GET(self) -> None:
        path = Path(self.translate_path(self.path))
        if not (Index.is_dying and path.suffix == ".whl"):
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Length", str(path.stat().st_size))
        self.end_headers()
        with path.open("rb") as wheel:
            self.wfile.write(wheel.read(path.stat().st_size // 2))
        Index.hung_up += 1
        return self.connection.close()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def index(base: Path, tmp_path: Path) -> Iterator[str]:
    """The address of an index that has the base wheel."""
    (wheel,) = base.glob("*.whl")
    served = tmp_path / "index/torch"
    served.mkdir(parents=True)
    (served / wheel.name).symlink_to(wheel)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Index, directory=str(tmp_path / "index"))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


def test_next_run_fetches_what_the_last_one_could_not(base: Path, fetching: Place, index: str) -> None:
    place, alone = fetching, {"PIP_CONFIG_FILE": "/dev/null", "PIP_NO_CACHE_DIR": "1", "PIP_RETRIES": "0"}
    place.variables = {**alone, "PIP_INDEX_URL": index, "PIP_EXTRA_INDEX_URL": "", "PIP_FIND_LINKS": ""}
    Index.is_dying = True
    failed = place.run(place.command("check"))
    Index.is_dying = False
    assert Index.hung_up
    assert failed.code == MissingError.exit_code, failed.said
    assert "error: pip could not download torch" in failed.said and "Traceback" not in failed.said
    assert "  next: check the network; " in failed.said
    assert not list(place.repository.rglob("*.whl")) and not list(place.repository.rglob("download-*"))
    assert place.run(place.command("check")).code == 0
    (fetched,) = place.repository.rglob("*.whl")
    assert fetched.read_bytes() == next(base.glob("*.whl")).read_bytes()
