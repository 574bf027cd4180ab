"""Callers whose server is killed, or killed and started anew: they get the answers of calm runs."""

from pathlib import Path

import pytest

from service.client import Client
from tests.bench.failover import KINDS, questions, survive
from tests.faults.process import serving_process
from tests.free_port import free_port
from tests.tiny_model import TinyShape, write_tiny_gguf

pytestmark = pytest.mark.slow

STREAMS, NEW_TOKENS = 8, 1000
LONG = 4000
"""Tokens that take about a second: nobody has them all before the server is killed."""
COMPARED = ("text", "token_ids", "finish_reason", "seed")


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=TinyShape(context=8192))


def test_when_one_of_two_servers_is_killed_every_stream_ends_as_in_a_calm_run(model: Path) -> None:
    with serving_process(model, "--threads", "1") as one, serving_process(model, "--threads", "1") as other:
        outcomes = survive([one.url, other.url], one.process.kill, STREAMS, NEW_TOKENS)

    assert [True] * STREAMS == [each.equal for each in outcomes]
    assert all(each.resumed_tokens for each in outcomes)
    assert set(KINDS) == {each.kind for each in outcomes}


def test_a_stream_waits_for_its_only_server_to_come_back(model: Path) -> None:
    port = ("--port", str(free_port()))
    (_, fields), *_ = questions(1, LONG)
    fields["speculation"] = "off"
    with Client(f"http://127.0.0.1:{port[1]}", attempts=20) as client:
        with serving_process(model, *port) as server:
            calm = client.generate(**fields)
            stream = client.stream(**fields)
            next(stream)
            server.process.kill()
        with serving_process(model, *port):
            *_, answer = stream

    assert [calm[name] for name in COMPARED] == [answer[name] for name in COMPARED]
    assert 0 < answer["usage"]["resumed_tokens"] < LONG
