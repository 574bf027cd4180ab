"""The hub that tests play says what the hub's own client expects of one, and we ask for what that client asks for."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from huggingface_hub import HfApi, hf_hub_url

from model.loading.hf_client import HubClient
from model.loading.hf_reference import HubAccess, HubReference
from tests.fake_hub import COMMIT, FakeHub, running

FILES = {"config.json": b"{}", "model.safetensors": b"weights", "q4/a b.gguf": b"GGUF"}
REVISION = "refs/pr/1"


@pytest.fixture
def hub() -> Iterator[FakeHub]:
    with running(FakeHub(dict(FILES), revisions=("main", REVISION))) as hub:
        yield hub


def test_both_clients_read_the_same_listing(hub: FakeHub) -> None:
    reference = HubReference("ORG", "REPO", None, REVISION)
    info = HfApi(endpoint=hub.endpoint, token=False).model_info("ORG/REPO", revision=REVISION, files_metadata=True)
    with HubClient(HubAccess(hub.endpoint)) as client:
        listing = client.listing(reference)

    assert info.sha == listing.commit
    assert [
        (file.rfilename, file.size, file.lfs.sha256 if file.lfs else file.blob_id) for file in info.siblings or ()
    ] == [(file.name, file.bytes, file.hash) for file in listing.files.values()]
    assert hub.requests[0].path == hub.requests[1].path


@pytest.mark.parametrize("name", FILES)
def test_both_clients_ask_for_the_same_address_of_a_file(hub: FakeHub, tmp_path: Path, name: str) -> None:
    reference = HubReference("ORG", "REPO")
    with HubClient(HubAccess(hub.endpoint)) as client:
        client.download(reference, COMMIT, client.listing(reference).files[name], tmp_path / "part", lambda done: None)

    expected = hf_hub_url("ORG/REPO", name, revision=COMMIT, endpoint=hub.endpoint)
    assert unquote(urlsplit(expected).path) == hub.requests[-1].path
    assert FILES[name] == (tmp_path / "part").read_bytes()
