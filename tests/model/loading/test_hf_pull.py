"""A model of the hub arrives whole or not at all, from a hub that these tests play themselves over real HTTP."""

import hashlib
import json
import shutil
import threading
from pathlib import Path

import pytest

from model.loading.hf_pull import RECORD, damaged_files, pull_from_hub, read_record
from model.loading.hf_reference import HubAccess, HubReference
from model.loading.wheels import PullError
from tests.fake_hub import COMMIT, FakeHub, broken_off, ranged, whole
from tests.hub_puller import FILES, REPO, TAKEN, WEIGHTS, Puller, names


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


def test_a_new_commit_needs_room_for_what_changed_alone(
    pull: Puller, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    pull()
    hub.commit = "d" * 40
    usage = shutil.disk_usage(pull.folder)
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage._replace(free=100))

    assert TAKEN == names(pull())


def test_files_are_copied_where_they_cannot_be_linked(
    pull: Puller, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(source: Path, target: Path) -> None:
        raise OSError("no links here")

    pull()
    hub.commit = "d" * 40
    hub.requests.clear()
    monkeypatch.setattr("os.link", cannot)

    assert WEIGHTS == (pull() / "model.safetensors").read_bytes()
    assert [] == hub.asked_files
