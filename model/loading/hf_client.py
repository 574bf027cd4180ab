"""The Hugging Face hub over HTTP: what a repository holds, and the bytes of its files.

Its own client is not used: it checks sizes and no hashes, begins again what came over its other protocol, and reads the
environment by itself. Knows no folders. Always: a file is asked for from where it stopped; no more bytes are taken than
the hub said; redirects lead to https or stay on the hub; the token goes to the hub alone and into no message.
"""

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Self, TypeVar
from urllib.parse import quote

import httpx

from model.loading.hf_reference import HubAccess, HubReference
from model.loading.wheels import PullError

MOST_LISTING_BYTES = 32 << 20
MOST_REDIRECTS = 5
ATTEMPTS = 4
MOST_WAIT_S = 60.0
TIMEOUT = httpx.Timeout(30.0, connect=10.0)
COMMIT = re.compile(r"[0-9a-f]{40}")
HASHES = {"sha256": re.compile(r"[0-9a-f]{64}"), "git-sha1": COMMIT}
Result = TypeVar("Result")
_MOVED = frozenset({301, 302, 303, 307, 308})
_TRY_AGAIN = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file of a repository, and the hash by which it is known: of its content, or of it as a blob of git."""

    name: str
    bytes: int
    hash: str
    algorithm: str
    """`sha256`, or `git-sha1`."""


@dataclass(frozen=True, slots=True)
class Listing:
    """What a repository holds at one commit."""

    commit: str
    license: str | None
    files: Mapping[str, HubFile]


class TryAgain(Exception):
    """The hub or the way to it failed for now."""

    def __init__(self, reason: str, wait_s: float | None = None) -> None:
        super().__init__(reason)
        self.wait_s = wait_s


class HubClient:
    """One pull's connection to the hub. To be closed."""

    def __init__(self, access: HubAccess, *, sleep: Callable[[float], None] = time.sleep) -> None:
        """Raises PullError where the endpoint is no address."""
        self._endpoint = _address(access.endpoint)
        self._token = access.token
        self._sleep = sleep
        self._http = httpx.Client(timeout=TIMEOUT, headers={"accept-encoding": "identity", "user-agent": "tane"})

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._http.close()

    def listing(self, reference: HubReference) -> Listing:
        """Raises PullError."""
        address = f"/api/models/{reference.repository_id}/revision/{quote(reference.revision, safe='')}?blobs=true"
        return listing_of(self._persist(lambda: self._json(address, reference), lambda: 0), reference)

    def download(
        self, reference: HubReference, commit: str, file: HubFile, part: Path, told: Callable[[int], None]
    ) -> None:
        """Bring `part`, which may hold a beginning of the file, to the file's size.

        `told`: how many bytes are there. Raises PullError and OSError; what came stays.
        """
        address = f"/{reference.repository_id}/resolve/{commit}/{quote(file.name)}"

        def come() -> None:
            with part.open("ab") as sink:
                self._append(address, reference, file, sink, told)

        self._persist(come, lambda: part.stat().st_size if part.exists() else 0)

    def _persist(self, work: Callable[[], Result], size: Callable[[], int]) -> Result:
        """Try again while it makes sense; after an attempt that brought something the count begins anew."""
        failures = 0
        while True:
            before = size()
            try:
                return work()
            except TryAgain as error:
                failures = 1 if size() > before else failures + 1
                wait_s = error.wait_s if error.wait_s is not None else 2.0 ** (failures - 1)
                if failures >= ATTEMPTS or wait_s > MOST_WAIT_S:
                    raise PullError(f"{error}; what came is kept, and the next pull goes on after it") from error
                self._sleep(wait_s)

    def _json(self, address: str, reference: HubReference) -> Any:
        answer = bytearray()
        with self._answer(address, reference) as response:
            for piece in response.iter_bytes():
                answer += piece
                if len(answer) > MOST_LISTING_BYTES:
                    raise PullError(f"the hub's list of {reference.repository_id} is too long")
        try:
            return json.loads(answer)
        except (ValueError, RecursionError):
            raise PullError(f"the hub's list of {reference.repository_id} is not JSON") from None

    def _append(
        self, address: str, reference: HubReference, file: HubFile, sink: IO[bytes], told: Callable[[int], None]
    ) -> None:
        done = sink.tell()
        if done > file.bytes:
            sink.truncate(0)
            done = 0
        if done == file.bytes:
            return
        headers = {"range": f"bytes={done}-"} if done else {}
        with self._answer(address, reference, headers) as response:
            if done and not _continues(response, done):
                sink.truncate(0)
                done = 0
            for piece in response.iter_raw():
                done += len(piece)
                if done > file.bytes:
                    raise PullError(f"the hub sends more of {file.name} than the {file.bytes} bytes that it stated")
                sink.write(piece)
                told(done)
        if done < file.bytes:
            raise TryAgain(f"the hub stopped sending {file.name} after {done} of {file.bytes} bytes")

    @contextmanager
    def _answer(
        self, address: str, reference: HubReference, headers: Mapping[str, str] | None = None
    ) -> Iterator[httpx.Response]:
        """A successful answer whose body is still to come. Raises PullError, and TryAgain also while it comes."""
        try:
            url = self._endpoint.join(f"{self._endpoint.path.rstrip('/')}{address}")
            response = self._follow(url, headers or {})
            try:
                self._check(response, reference)
                yield response
            finally:
                response.close()
        except (httpx.TransportError, httpx.DecodingError) as error:
            raise TryAgain(f"the hub at {self._endpoint.host} cannot be reached or broke off: {error}") from error
        except httpx.InvalidURL:
            raise PullError("the hub sends on to what is no address") from None

    def _follow(self, url: httpx.URL, headers: Mapping[str, str]) -> httpx.Response:
        for _ in range(MOST_REDIRECTS + 1):
            own = self._is_hub(url)
            token = {"authorization": f"Bearer {self._token}"} if self._token and own else {}
            response = self._http.send(self._http.build_request("GET", url, headers={**headers, **token}), stream=True)
            if response.status_code not in _MOVED or "location" not in response.headers:
                return response
            response.close()
            url = url.join(response.headers["location"])
            if url.scheme != "https" and not self._is_hub(url):
                raise PullError(f"the hub sends to {url.host} without encryption, where nothing is fetched from")
        raise PullError(f"the hub sends on more than {MOST_REDIRECTS} times")

    def _is_hub(self, url: httpx.URL) -> bool:
        hub = self._endpoint
        return (url.scheme, url.host, url.port) == (hub.scheme, hub.host, hub.port)

    def _check(self, response: httpx.Response, reference: HubReference) -> None:
        status = response.status_code
        if status in (httpx.codes.OK, httpx.codes.PARTIAL_CONTENT):
            return
        if status in _TRY_AGAIN:
            wait = response.headers.get("retry-after", "")
            asks = f" and asks to wait {wait} seconds" if wait.isdecimal() else ""
            raise TryAgain(f"the hub answered {status}{asks}", float(wait) if wait.isdecimal() else None)
        raise PullError(self._refusal(status, response.headers.get("x-error-code", ""), reference))

    def _refusal(self, status: int, code: str, reference: HubReference) -> str:
        name = reference.repository_id
        if status in (httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN):
            token = (
                "the token in HF_TOKEN may not read it" if self._token else "set HF_TOKEN to a token that may read it"
            )
            if code == "GatedRepo":
                return f"{name} is given only to who agreed to its terms at {self._endpoint}/{name}; then {token}"
            return f"the hub does not show {name}: there is no such repository, or it is private and {token}"
        if status == httpx.codes.NOT_FOUND and code == "RevisionNotFound":
            return f"{name} has no revision {reference.revision}"
        if status == httpx.codes.NOT_FOUND and code == "EntryNotFound":
            return f"a file that the hub listed for {name} is not there"
        if status == httpx.codes.NOT_FOUND:
            return f"the hub has no repository {name}"
        return f"the hub answered {status} for {name}"


def _address(endpoint: str) -> httpx.URL:
    try:
        url = httpx.URL(endpoint.rstrip("/"))
    except httpx.InvalidURL:
        url = httpx.URL("")
    if url.scheme not in ("http", "https") or not url.host:
        raise PullError("the hub's address is none: HF_ENDPOINT must be like https://huggingface.co")
    return url


def _continues(response: httpx.Response, done: int) -> bool:
    """Whether the answer goes on after so many bytes, and does not begin anew."""
    stated = response.headers.get("content-range", "")
    return response.status_code == httpx.codes.PARTIAL_CONTENT and stated.startswith(f"bytes {done}-")


def listing_of(answer: Any, reference: HubReference) -> Listing:
    """What the hub's answer says. Raises PullError where it is not of the known form."""
    try:
        files = [_file_of(each) for each in answer["siblings"]]
        commit = answer["sha"]
        license = (answer.get("cardData") or {}).get("license")
        is_known = bool(COMMIT.fullmatch(commit))
    except (KeyError, TypeError, ValueError, AttributeError):
        is_known = False
    if not is_known:
        raise PullError(f"the hub's list of {reference.repository_id} is not of the known form")
    return Listing(commit, license if isinstance(license, str) else None, {file.name: file for file in files})


def _file_of(stated: Mapping[str, Any]) -> HubFile:
    """Raises KeyError, TypeError and ValueError."""
    name, size, lfs = stated["rfilename"], stated["size"], stated.get("lfs")
    algorithm = "sha256" if lfs else "git-sha1"
    value = lfs["sha256"] if lfs else stated["blobId"]
    if not isinstance(name, str) or type(size) is not int or size < 0:
        raise ValueError("no file")
    if not HASHES[algorithm].fullmatch(value):
        raise ValueError("no hash")
    return HubFile(name, size, value, algorithm)
