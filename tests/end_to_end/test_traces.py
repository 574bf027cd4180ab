"""`tane serve` as a process that tells a collector of its requests."""

import os
import signal
import subprocess
import time
from pathlib import Path

import httpx
import pytest

from service.server import CLOSE_S
from tests.end_to_end.test_shutdown import TANE, address_of
from tests.fake_collector import collecting
from tests.free_port import free_port
from tests.tiny_model import write_tiny_gguf

pytestmark = pytest.mark.slow

CANARY = "canary-7f3a"
TRACE = "0af7651916cd43dd8448eb211c80319c"
HEADERS = {"traceparent": f"00-{TRACE}-b7ad6b7169203331-01"}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf")


def served(model: Path, collector: str) -> tuple[dict[str, object], int, float]:
    """The answer of a server that is told of this collector, its exit code, and how long it took to end."""
    environ = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": collector}
    command = [TANE, "serve", "--model", str(model), "--port", "0", "--threads", "1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ)
    try:
        url = address_of(process)
        body = {"prompt": CANARY, "max_new_tokens": 8, "ignore_eos": True}
        answer = httpx.post(f"{url}/generate", json=body, headers=HEADERS, timeout=60).json()
        process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        code = process.wait(timeout=30)
        return answer, code, time.monotonic() - began
    finally:
        process.kill()
        process.communicate()


def test_a_request_is_told_with_the_times_that_its_caller_is_told(model: Path) -> None:
    with collecting() as collector:
        answer, code, _ = served(model, collector.url)

    timings, usage = answer["timings"], answer["usage"]
    assert isinstance(timings, dict)
    assert isinstance(usage, dict)
    spans = {span.name: span for span in collector.spans}
    assert 0 == code
    assert answer["id"] == spans["POST /generate"].attributes["tane.request_id"]
    assert {TRACE} == {span.trace_id for span in collector.spans}
    assert (usage["prompt_tokens"], 8) == (
        spans["POST /generate"].attributes["gen_ai.usage.input_tokens"],
        spans["POST /generate"].attributes["gen_ai.usage.output_tokens"],
    )
    assert [timings["prefill_s"], timings["decode_s"]] == pytest.approx(
        [spans["prefill"].seconds, spans["decode"].seconds], abs=1e-4
    )
    assert not any(CANARY.encode() in body for body in collector.bodies)


def test_a_server_whose_collector_is_gone_answers_and_ends(model: Path) -> None:
    answer, code, took = served(model, f"http://127.0.0.1:{free_port()}")

    assert (0, "text" in answer) == (code, True)
    assert took < 2 * CLOSE_S
