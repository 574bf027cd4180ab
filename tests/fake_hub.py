"""A Hugging Face hub of this machine: a real HTTP server that holds repositories, and fails as it is told to."""

import hashlib
import json
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34
LISTING = re.compile(r"/api/models/([^/]+/[^/]+)/revision/([^/]+)")
FILE = re.compile(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)")


@dataclass
class Request:
    """What the hub was asked for."""

    path: str
    headers: Mapping[str, str]


Answer = Callable[[BaseHTTPRequestHandler], None]


@dataclass
class FakeHub:
    """One repository, `ORG/REPO`; `lfs` names the files that are kept as large ones."""

    files: dict[str, bytes]
    lfs: set[str] = field(default_factory=lambda: {"model.safetensors"})
    commit: str = COMMIT
    revisions: tuple[str, ...] = ("main",)
    license: str | None = "apache-2.0"
    states: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What the listing says of a file, in place of what is true."""
    sends: dict[str, bytes] = field(default_factory=dict)
    """What comes in place of a file's content."""
    answers: list[Answer] = field(default_factory=list)
    """Taken in turn by requests for files, in place of the content."""
    listing_answers: list[Answer] = field(default_factory=list)
    requests: list[Request] = field(default_factory=list)
    port: int = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def asked_files(self) -> list[str]:
        return [match[3] for request in self.requests if (match := FILE.fullmatch(request.path))]

    def sibling(self, name: str) -> dict[str, Any]:
        data = self.files[name]
        blob = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
        said: dict[str, Any] = {"rfilename": name, "size": len(data), "blobId": blob}
        if name in self.lfs:
            said["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
        return {**said, **self.states.get(name, {})}

    def listing(self) -> bytes:
        siblings = [self.sibling(name) for name in self.files]
        said = {"id": "ORG/REPO", "sha": self.commit, "cardData": {"license": self.license}, "siblings": siblings}
        return json.dumps(said).encode()


class Handler(BaseHTTPRequestHandler):
    """Speaks the part of the hub's API that a pull needs."""

    hub: FakeHub

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        said = {name.lower(): value for name, value in self.headers.items()}
        self.hub.requests.append(Request(unquote(parts.path), said))
        if match := LISTING.fullmatch(parts.path):
            self._list(match[1], unquote(match[2]), parts.query)
        elif match := FILE.fullmatch(parts.path):
            self._send_file(match[1], match[2], unquote(match[3]))
        else:
            refuse(404)(self)

    def _list(self, repository: str, revision: str, query: str) -> None:
        if self.hub.listing_answers:
            self.hub.listing_answers.pop(0)(self)
        elif repository != "ORG/REPO" or query != "blobs=true":
            refuse(404, "RepoNotFound")(self)
        elif revision not in (*self.hub.revisions, self.hub.commit):
            refuse(404, "RevisionNotFound")(self)
        else:
            whole(self.hub.listing())(self)

    def _send_file(self, repository: str, revision: str, name: str) -> None:
        if self.hub.answers:
            self.hub.answers.pop(0)(self)
        elif (repository, revision) != ("ORG/REPO", self.hub.commit) or name not in self.hub.files:
            refuse(404, "EntryNotFound")(self)
        else:
            ranged(self.hub.sends.get(name, self.hub.files[name]))(self)

    def log_message(self, *arguments: Any) -> None:
        """Says nothing."""


def send(handler: BaseHTTPRequestHandler, status: int, headers: Mapping[str, str], body: bytes = b"") -> None:
    handler.send_response(status)
    for name, value in {"content-length": str(len(body)), **headers}.items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def whole(data: bytes) -> Answer:
    return lambda handler: send(handler, 200, {}, data)


def ranged(data: bytes) -> Answer:
    """The rest after where the request says that it has the beginning."""

    def answer(handler: BaseHTTPRequestHandler) -> None:
        asked = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("range", ""))
        if not asked:
            send(handler, 200, {}, data)
        elif int(asked[1]) >= len(data):
            send(handler, 416, {"content-range": f"bytes */{len(data)}"})
        else:
            start = int(asked[1])
            span = f"bytes {start}-{len(data) - 1}/{len(data)}"
            send(handler, 206, {"content-range": span}, data[start:])

    return answer


def refuse(status: int, code: str = "", **headers: str) -> Answer:
    said = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: send(handler, status, {"x-error-code": code, **said})


def broken_off(data: bytes, after: int) -> Answer:
    """The first bytes, and then the connection ends."""
    return lambda handler: send(handler, 200, {"content-length": str(len(data))}, data[:after])


def redirect(address: str) -> Answer:
    return lambda handler: send(handler, 302, {"location": address})


@contextmanager
def running(hub: FakeHub) -> Iterator[FakeHub]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("OneHub", (Handler,), {"hub": hub}))
    hub.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
