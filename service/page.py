"""The files of the page that the server shows to people, and the headers that they are sent with.

Knows files and header values; knows no HTTP and no models. Read once, when it is imported.
Always: what is served is one of these files, so no path that a caller writes is ever looked up on the disk; the policy
lets the page load and call this server alone, and run no script that is not one of these files.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

FOLDER = Path(__file__).parent / "ui"
PREFIX = "/ui/"
MEDIA_TYPES: Mapping[str, str] = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""Files that end otherwise are not served."""
HEADERS: Mapping[str, str] = {
    "cache-control": "no-cache",
    "content-security-policy": "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
"""Of each file. A browser keeps them and asks each time whether they are still the same."""


@dataclass(frozen=True, slots=True)
class PageFile:
    """One file as it is sent."""

    content: bytes
    media_type: str
    etag: str
    """Of these bytes alone, so that it is the same on every server of this version."""


def _files() -> Iterator[tuple[str, PageFile]]:
    for path in sorted(FOLDER.rglob("*")):
        media_type = MEDIA_TYPES.get(path.suffix)
        if media_type is None or not path.is_file():
            continue
        content = path.read_bytes()
        name = path.relative_to(FOLDER).as_posix()
        address = "/" if name == "index.html" else PREFIX + name
        yield address, PageFile(content, media_type, f'"{sha256(content).hexdigest()[:32]}"')


FILES: Mapping[str, PageFile] = dict(_files())
"""By path."""


def is_known(if_none_match: str | None, file: PageFile) -> bool:
    """Whether a caller who sends this header has the file already (RFC 9110, section 13.1.2: weak comparison)."""
    if if_none_match is None:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in if_none_match.split(",")]
    return file.etag in tags or tags == ["*"]
