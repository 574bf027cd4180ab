"""A model of the hub arrives whole or not at all, from a hub that these tests play themselves over real HTTP."""

import hashlib
import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from model.loading.hf_pull import RECORD, damaged_files, pull_from_hub, read_record
from model.loading.hf_reference import HubAccess, HubReference
from model.loading.wheels import PullError
from tests.fake_hub import COMMIT, FakeHub, broken_off, ranged, redirect, refuse, running, whole

WEIGHTS = bytes(range(256)) * 700
FILES = {
    "README.md": b"not needed",
    "config.json": b'{"model_type": "llama"}',
    "tokenizer.json": b"{}",
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"never taken",
    "onnx/model.safetensors": b"another one",
}
TAKEN = ["config.json", "model.safetensors", "pulled.json", "tokenizer.json"]
REPO = HubReference("ORG", "REPO")


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with running(FakeHub(dict(FILES))) as hub:
        yield hub


class Puller:
    """Pulls into a folder, without waiting between attempts."""

    def __init__(self, folder: Path, hub: FakeHub) -> None:
        self.folder, self.hub = folder, hub
        self.waits: list[float] = []
        self.seen: list[tuple[int, int]] = []

    def __call__(self, reference: HubReference = REPO, token: str | None = None) -> Path:
        return pull_from_hub(
            reference,
            HubAccess(self.hub.endpoint, token),
            lambda done, total: self.seen.append((done, total)),
            folder=self.folder,
            sleep=self.waits.append,
        )

    @property
    def part(self) -> Path:
        """Where the weights are while they come."""
        partial = self.folder / "hf" / "main" / "ORG" / "REPO+partial"
        return partial / f"{hashlib.sha256(WEIGHTS).hexdigest()}.part"


@pytest.fixture
def pull(tmp_path: Path, hub: FakeHub) -> Puller:
    return Puller(tmp_path, hub)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_files_that_a_model_needs_are_pulled_and_no_others(pull: Puller) -> None:
    folder = pull()

    assert TAKEN == names(folder)
    assert WEIGHTS == (folder / "model.safetensors").read_bytes()
    assert ["REPO"] == names(folder.parent)


def test_the_record_names_commit_licence_and_hashes(pull: Puller) -> None:
    folder = pull()

    record = json.loads((folder / RECORD).read_text())
    hashes = {file["name"]: (file["algorithm"], file["hash"]) for file in record["files"]}
    assert ("hf:ORG/REPO", COMMIT, "apache-2.0") == (record["name"], record["commit"], record["license"])
    assert ("sha256", hashlib.sha256(WEIGHTS).hexdigest()) == hashes["model.safetensors"]
    assert ("git-sha1", hashlib.sha1(b"blob 2\0{}").hexdigest()) == hashes["tokenizer.json"]


def test_files_are_asked_for_at_the_commit_that_was_listed(pull: Puller, hub: FakeHub) -> None:
    pull()

    assert {f"/ORG/REPO/resolve/{COMMIT}"} == {
        request.path.rpartition("/")[0] for request in hub.requests if "/resolve/" in request.path
    }


def test_shards_are_those_that_the_index_names(pull: Puller, hub: FakeHub) -> None:
    del hub.files["model.safetensors"]
    shards = [f"model-0000{number}-of-00002.safetensors" for number in (1, 2)]
    hub.files |= {
        "model.safetensors.index.json": json.dumps({"weight_map": dict(zip("ab", shards, strict=True))}).encode(),
        **dict.fromkeys(shards, WEIGHTS[:99]),
        "model-of-another.safetensors": b"",
    }

    assert {*shards, "model.safetensors.index.json"} == {name for name in names(pull()) if "safetensors" in name}


@pytest.mark.parametrize(
    "index",
    [
        b"{",
        b"[]",
        b'{"weight_map": {}}',
        b'{"weight_map": {"a": "../../etc/x.safetensors"}}',
        b'{"weight_map": {"a": "..\\\\x.safetensors"}}',
        b'{"weight_map": {"a": "model.bin"}}',
        b'{"weight_map": {"a": 1}}',
    ],
)
def test_an_index_that_names_no_shards_beside_it_is_refused(pull: Puller, hub: FakeHub, index: bytes) -> None:
    del hub.files["model.safetensors"]
    hub.files["model.safetensors.index.json"] = index

    with pytest.raises(PullError, match="names no shards beside it"):
        pull()


def test_a_shard_that_is_not_there_is_named(pull: Puller, hub: FakeHub) -> None:
    del hub.files["model.safetensors"]
    hub.files["model.safetensors.index.json"] = b'{"weight_map": {"a": "gone.safetensors"}}'

    with pytest.raises(PullError, match=r"ORG/REPO has no gone\.safetensors at commit c0ffee"):
        pull()


def test_a_repository_without_weights_names_a_file_that_could_be_pulled(pull: Puller, hub: FakeHub) -> None:
    hub.files = {"config.json": b"{}", "b.gguf": b"", "a.gguf": b""}

    with pytest.raises(PullError, match=r"has no model\.safetensors .*such as hf:ORG/REPO/a\.gguf"):
        pull()


def test_one_gguf_file_is_pulled_alone(pull: Puller, hub: FakeHub) -> None:
    hub.files["q4/some.gguf"] = b"GGUF"

    path = pull(HubReference("ORG", "REPO", "q4/some.gguf"))

    assert b"GGUF" == path.read_bytes()
    assert ["pulled.json", "some.gguf"] == names(path.parent)


def test_a_revision_is_asked_for_by_its_name(pull: Puller, hub: FakeHub) -> None:
    hub.revisions = ("refs/pr/1",)

    assert TAKEN == names(pull(HubReference("ORG", "REPO", None, "refs/pr/1")))


def test_what_is_there_is_not_fetched_again(pull: Puller, hub: FakeHub) -> None:
    first = pull()
    hub.requests.clear()

    assert first == pull()
    assert [] == hub.asked_files


def test_a_damaged_file_alone_is_fetched_again(pull: Puller, hub: FakeHub) -> None:
    folder = pull()
    (folder / "tokenizer.json").write_bytes(b"[]")
    hub.requests.clear()

    pull()

    assert ["tokenizer.json"] == hub.asked_files
    assert b"{}" == (folder / "tokenizer.json").read_bytes()


def test_a_new_commit_replaces_what_changed(pull: Puller, hub: FakeHub) -> None:
    folder = pull()
    hub.commit = "d" * 40
    hub.files["tokenizer.json"] = b'{"new": 1}'
    hub.requests.clear()

    pull()

    assert ["tokenizer.json"] == hub.asked_files
    assert b'{"new": 1}' == (folder / "tokenizer.json").read_bytes()
    assert ["REPO"] == names(folder.parent)
    record = read_record(folder)
    assert record is not None
    assert ("d" * 40, []) == (record.commit, damaged_files(folder, record))


def test_a_connection_that_breaks_off_is_taken_up_where_it_ended(pull: Puller, hub: FakeHub) -> None:
    del hub.files["tokenizer.json"], hub.files["config.json"]
    hub.files["config.json"] = FILES["config.json"]
    hub.answers = [ranged(FILES["config.json"]), broken_off(WEIGHTS, 1000)]

    folder = pull()

    assert WEIGHTS == (folder / "model.safetensors").read_bytes()
    assert "bytes=1000-" == hub.requests[-1].headers["range"]
    assert [1.0] == pull.waits


def test_an_interrupted_pull_goes_on_after_the_bytes_that_came(pull: Puller, hub: FakeHub) -> None:
    class Stop(Exception):
        pass

    def stop(seconds: float) -> None:
        raise Stop

    hub.answers = [whole(FILES["tokenizer.json"]), whole(FILES["config.json"]), broken_off(WEIGHTS, 1000)]
    with pytest.raises(Stop):
        pull_from_hub(REPO, HubAccess(hub.endpoint), lambda done, total: None, folder=pull.folder, sleep=stop)
    assert not REPO.place(pull.folder).exists()
    hub.requests.clear()

    folder = pull()

    assert ["model.safetensors"] == hub.asked_files
    assert "bytes=1000-" == hub.requests[-1].headers["range"]
    assert WEIGHTS == (folder / "model.safetensors").read_bytes()


def leave_part(pull: Puller, data: bytes) -> None:
    pull.part.parent.mkdir(parents=True)
    pull.part.write_bytes(data)


def test_a_hub_that_begins_anew_is_followed(pull: Puller, hub: FakeHub) -> None:
    leave_part(pull, WEIGHTS[:1000])
    hub.answers = [whole(FILES["tokenizer.json"]), whole(FILES["config.json"]), whole(WEIGHTS)]

    assert WEIGHTS == (pull() / "model.safetensors").read_bytes()


def test_a_part_that_is_too_long_is_begun_anew(pull: Puller) -> None:
    leave_part(pull, WEIGHTS + b"more")

    assert WEIGHTS == (pull() / "model.safetensors").read_bytes()


def test_a_wrong_beginning_is_found_by_the_hash_and_thrown_away(pull: Puller) -> None:
    leave_part(pull, b"x" * 1000)

    with pytest.raises(PullError, match=r"model\.safetensors has sha256 [0-9a-f]{64}, and the hub states"):
        pull()

    assert WEIGHTS == (pull() / "model.safetensors").read_bytes()


@pytest.mark.parametrize(("name", "algorithm"), [("model.safetensors", "sha256"), ("config.json", "git-sha1")])
def test_a_file_with_another_hash_is_refused_and_thrown_away(
    pull: Puller, hub: FakeHub, name: str, algorithm: str
) -> None:
    hub.sends[name] = hub.files[name][::-1]

    with pytest.raises(PullError, match=f"{name} has {algorithm} [0-9a-f]+, and the hub states"):
        pull()

    assert not REPO.place(pull.folder).exists()
    assert not list(pull.folder.rglob("*.part"))


def test_no_more_is_taken_than_was_stated(pull: Puller, hub: FakeHub) -> None:
    hub.sends["model.safetensors"] = WEIGHTS + b"x"

    with pytest.raises(PullError, match=f"sends more of model.safetensors than the {len(WEIGHTS)} bytes"):
        pull()


def test_progress_grows_to_the_whole(pull: Puller, hub: FakeHub) -> None:
    pull()

    total = sum(len(FILES[name]) for name in TAKEN if name in FILES)
    assert sorted(pull.seen) == pull.seen
    assert (total, total) == pull.seen[-1]


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


def test_pulls_at_the_same_time_fetch_once(pull: Puller, hub: FakeHub) -> None:
    threads = [threading.Thread(target=pull) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert ["config.json", "model.safetensors", "tokenizer.json"] == sorted(hub.asked_files)


def test_too_little_room_is_told_before_the_weights_are_fetched(
    pull: Puller, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.states["model.safetensors"] = {"size": 1 << 60}

    with pytest.raises(PullError, match=r"it needs [\d,]+ bytes more, and [\d,]+ are free"):
        pull()

    assert [] == hub.asked_files


def test_a_folder_that_cannot_be_made_is_named(pull: Puller) -> None:
    (pull.folder / "hf").write_bytes(b"a file where the folder should be")

    with pytest.raises(PullError, match="cannot keep the model in"):
        pull()
