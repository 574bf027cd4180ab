"""How the hub is spoken to: refusals, waiting, redirects, tokens and answers of other forms."""

import hashlib
from functools import partial
from pathlib import Path

import httpx
import pytest

from model.loading.hf_pull import pull_from_hub
from model.loading.hf_reference import HubAccess, HubReference
from model.loading.wheels import PullError
from tests.fake_hub import COMMIT, FakeHub, redirect, refuse, running, whole
from tests.hub_puller import FILES, REPO, TAKEN, Puller, names


def test_a_busy_hub_is_asked_again_after_the_time_that_it_names(pull: Puller, hub: FakeHub) -> None:
    hub.listing_answers = [refuse(429, retry_after="7"), refuse(503)]

    assert TAKEN == names(pull())
    assert [7.0, 2.0] == pull.waits


def test_a_hub_that_stays_busy_is_given_up(pull: Puller, hub: FakeHub) -> None:
    hub.listing_answers = [refuse(500)] * 4

    with pytest.raises(PullError, match="the hub answered 500; what came is kept"):
        pull()


def test_nobody_waits_for_an_hour(pull: Puller, hub: FakeHub) -> None:
    hub.listing_answers = [refuse(429, retry_after="3600")]

    with pytest.raises(PullError, match="answered 429 and asks to wait 3600 seconds"):
        pull()

    assert [] == pull.waits


@pytest.mark.parametrize(
    ("answer", "token", "said"),
    [
        ((401, "RepoNotFound"), None, "no such repository, or it is private and set HF_TOKEN"),
        ((401, "RepoNotFound"), "t0ken", "or it is private and the token in HF_TOKEN may not read it"),
        (
            (403, "GatedRepo"),
            None,
            "only to who agreed to its terms at http://127.0.0.1:[0-9]+/ORG/REPO; then set HF_TOKEN",
        ),
        ((404, "RepoNotFound"), None, "the hub has no repository ORG/REPO"),
        ((404, "RevisionNotFound"), None, "ORG/REPO has no revision main"),
        ((404, "EntryNotFound"), None, "a file that the hub listed for ORG/REPO is not there"),
        ((418, ""), None, "the hub answered 418 for ORG/REPO"),
    ],
)
def test_a_refusal_says_what_can_be_done(
    pull: Puller, hub: FakeHub, answer: tuple[int, str], token: str | None, said: str
) -> None:
    hub.listing_answers = [refuse(*answer)]

    with pytest.raises(PullError, match=said) as refused:
        pull(token=token)

    assert "t0ken" not in str(refused.value)


@pytest.mark.parametrize(
    "listing",
    [
        b"",
        b"[]",
        b"{}",
        b'{"sha": "main", "siblings": []}',
        b'{"sha": 7, "siblings": []}',
        b'{"sha": "%s", "siblings": [{"rfilename": "config.json", "size": -1, "blobId": "%s"}]}'
        % (b"c" * 40, b"d" * 40),
        b'{"sha": "%s", "siblings": [{"rfilename": "config.json", "size": 1}]}' % (b"c" * 40),
        b'{"sha": "%s", "siblings": [{"rfilename": "x", "size": 1, "lfs": {"sha256": "../x"}}]}' % (b"c" * 40),
    ],
)
def test_a_listing_that_cannot_be_used_is_refused(pull: Puller, hub: FakeHub, listing: bytes) -> None:
    hub.listing_answers = [whole(listing)]

    with pytest.raises(PullError, match="the hub's list of ORG/REPO is not"):
        pull()


def test_an_endless_listing_is_stopped(pull: Puller, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("model.loading.hf_client.MOST_LISTING_BYTES", 100)

    with pytest.raises(PullError, match="list of ORG/REPO is too long"):
        pull()


def test_a_hub_that_is_not_there_is_named(tmp_path: Path) -> None:
    access = HubAccess("http://127.0.0.1:9")

    with pytest.raises(PullError, match=r"the hub at 127\.0\.0\.1 cannot be reached"):
        pull_from_hub(REPO, access, lambda done, total: None, folder=tmp_path, sleep=lambda seconds: None)


@pytest.mark.parametrize("endpoint", ["http://", "no address", "ftp://127.0.0.1", ""])
def test_an_address_that_is_none_is_refused(tmp_path: Path, endpoint: str) -> None:
    with pytest.raises(PullError, match="the hub's address is none"):
        pull_from_hub(REPO, HubAccess(endpoint), lambda done, total: None, folder=tmp_path)


def test_a_token_goes_to_the_hub_and_into_no_file(pull: Puller, hub: FakeHub) -> None:
    pull(token="t0ken")

    assert {"Bearer t0ken"} == {request.headers.get("authorization") for request in hub.requests}
    assert not [path for path in pull.folder.rglob("*") if path.is_file() and b"t0ken" in path.read_bytes()]


def test_nobody_is_named_without_a_token(pull: Puller, hub: FakeHub) -> None:
    pull()

    assert {None} == {request.headers.get("authorization") for request in hub.requests}


def test_a_redirect_on_the_hub_is_followed_with_the_token(pull: Puller, hub: FakeHub) -> None:
    moved = f"/api/models/ORG/REPO/revision/{COMMIT}?blobs=true"
    hub.listing_answers = [redirect(moved)]

    assert TAKEN == names(pull(token="t0ken"))
    assert "Bearer t0ken" == hub.requests[1].headers["authorization"]


def test_a_redirect_elsewhere_without_encryption_is_not_followed(pull: Puller, hub: FakeHub) -> None:
    with running(FakeHub(dict(FILES))) as other:
        hub.listing_answers = [redirect(f"{other.endpoint}/api/models/ORG/REPO/revision/main?blobs=true")]

        with pytest.raises(PullError, match=r"sends to 127\.0\.0\.1 without encryption"):
            pull(token="t0ken")

        assert [] == other.requests


def test_redirects_in_a_circle_are_given_up(pull: Puller, hub: FakeHub) -> None:
    hub.listing_answers = [redirect("/api/models/ORG/REPO/revision/main?blobs=true")] * 9

    with pytest.raises(PullError, match="sends on more than 5 times"):
        pull()


def test_another_host_gets_the_range_and_not_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[httpx.Request] = []
    sibling = FakeHub({"model.gguf": b"weights"}, lfs={"model.gguf"})

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        if request.url.host == "cdn.example":
            return httpx.Response(206, headers={"content-range": "bytes 3-6/7"}, stream=httpx.ByteStream(b"ghts"))
        if "/resolve/" in request.url.path:
            return httpx.Response(302, headers={"location": "https://cdn.example/blob?signed=1"})
        return httpx.Response(200, content=sibling.listing())

    monkeypatch.setattr(httpx, "Client", partial(httpx.Client, transport=httpx.MockTransport(answer)))
    reference = HubReference("ORG", "REPO", "model.gguf")
    place = reference.place(tmp_path)
    partial_folder = place.with_name(place.name + "+partial")
    partial_folder.mkdir(parents=True)
    (partial_folder / f"{hashlib.sha256(b'weights').hexdigest()}.part").write_bytes(b"wei")

    path = pull_from_hub(reference, HubAccess("https://hub.example", "t0ken"), lambda *_: None, folder=tmp_path)

    assert b"weights" == path.read_bytes()
    assert [("hub.example", True), ("hub.example", True), ("cdn.example", False)] == [
        (request.url.host, "authorization" in request.headers) for request in asked
    ]
    assert "bytes=3-" == asked[-1].headers["range"]


def test_a_mirror_may_lie_below_a_path(pull: Puller, hub: FakeHub) -> None:
    access = HubAccess(f"{hub.endpoint}/mirror/")

    with pytest.raises(PullError, match="the hub has no repository"):
        pull_from_hub(REPO, access, lambda done, total: None, folder=pull.folder)

    assert "/mirror/api/models/ORG/REPO/revision/main" == hub.requests[0].path
