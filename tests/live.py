"""A real server in a thread: settings, model, engine, door and sockets, as `tane serve` puts them together."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
from prometheus_client.parser import text_string_to_metric_families

from service.context import Service
from service.server import DrainingServer, http_config
from service.settings import Settings
from service.startup import build_service, runtimes_of


@dataclass(frozen=True)
class Live:
    """A running server, seen from outside, and the service behind it."""

    url: str
    service: Service

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, timeout=60)

    def samples(self, model: str | None = None) -> dict[str, float]:
        """Every sample of /metrics of this model or the main one by its name, followed by its other labels' values."""
        text = httpx.get(f"{self.url}/metrics").text
        name = model or self.service.main.model.name
        return {
            " ".join(
                (sample.name, *(value for label, value in sample.labels.items() if label != "model"))
            ): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.labels.get("model", name) == name
        }

    def wait_until(self, holds: Callable[[Mapping[str, float]], bool], model: str | None = None) -> None:
        """Look at the samples of this model or the main one until this holds of them."""
        deadline = time.monotonic() + PATIENCE_S
        while not holds(self.samples(model)):
            assert time.monotonic() < deadline, "it never came to hold"
            time.sleep(0.005)

    def wait_until_idle(self) -> None:
        """As far as was told: a request that has just begun may be told of a tenth of a second later."""
        self.wait_until(
            lambda samples: samples["tane_active_requests running"] + samples["tane_active_requests queued"] == 0
        )


DRAIN_S = 5.0
PATIENCE_S = 30.0


@contextmanager
def live_server(settings: Settings) -> Iterator[Live]:
    """Serve on a free port until the block ends."""
    service = build_service(settings.model_copy(update={"drain_s": DRAIN_S}))
    config = http_config(service, settings.model_copy(update={"port": 0, "log_level": "error"}))
    server = DrainingServer(config, service, runtimes_of(service))
    thread = threading.Thread(target=lambda: asyncio.run(server.serve_until_drained()), daemon=True)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive(), "the server did not start"
            time.sleep(0.005)
        host, port = server.servers[0].sockets[0].getsockname()[:2]
        yield Live(f"http://{host}:{port}", service)
    finally:
        server.should_exit = True
        thread.join(timeout=60)
        assert not thread.is_alive(), "the server did not stop"
