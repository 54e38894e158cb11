"""A server on this machine that answers as the Hugging Face Hub does for the files of one repository; what it
serves can be damaged.
"""

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

REPOSITORY = "someone/somewhere"
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class HubServer(ThreadingHTTPServer):
    """`files` maps a path in the repository to its content; `truncate` cuts each body by so many bytes."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), HubHandler)
        self.files = files
        self.truncate = 0
        self.downloads = 0

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class HubHandler(BaseHTTPRequestHandler):
    server: HubServer

    def do_HEAD(self) -> None:
        self.answer(send_body=False)

    def do_GET(self) -> None:
        self.answer(send_body=True)

    def answer(self, send_body: bool) -> None:
        prefix = f"/{REPOSITORY}/resolve/{COMMIT}/"
        content = (
            self.server.files.get(self.path.removeprefix(prefix))
            if self.path.startswith(prefix)
            else None
        )
        if self.path == f"/api/models/{REPOSITORY}/revision/main":
            content = json.dumps({"id": REPOSITORY, "sha": COMMIT}).encode()
        if content is None:
            self.head(404, 0, {"X-Error-Code": "EntryNotFound"})
        else:
            self.head(
                200, len(content), {"ETag": f'"{hashlib.sha256(content).hexdigest()}"'}
            )
            if send_body:
                self.server.downloads += 1
                self.wfile.write(content[: len(content) - self.server.truncate])
                self.close_connection = True

    def head(self, code: int, length: int, headers: dict[str, str]) -> None:
        self.send_response(code)
        for name, value in (
            headers | {"X-Repo-Commit": COMMIT, "Content-Length": str(length)}
        ).items():
            self.send_header(name, value)
        self.end_headers()

    def log_message(self, format: str, *arguments: object) -> None:
        pass


def client(endpoint: str, home: Path, **environment: str) -> str:
    """Code for `Commands.start(before=...)`: which hub the client asks, without pauses between tries."""
    settings = {
        "HF_ENDPOINT": endpoint,
        "HF_HOME": str(home),
        "HF_HUB_DISABLE_XET": "1",
    }
    settings |= {"HF_HUB_DISABLE_TELEMETRY": "1"} | environment
    return f"""
for name in [*os.environ]:
    if name.startswith("HF_") or name.lower().endswith("_proxy"):
        del os.environ[name]
os.environ.update({settings})
time.sleep = lambda seconds: None
"""


@contextmanager
def serving(files: dict[str, bytes]) -> Iterator[HubServer]:
    with HubServer(files) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
