"""The server around the app: metrics on a port of their own."""

import asyncio
import socket
import threading
import time

import httpx
import uvicorn

from service.app import create_app
from service.keys import Keys
from service.server import DrainingServer
from service.settings import Settings
from tests.fake_runtime import make_service


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as trial:
        port: int = trial.getsockname()[1]
    return port


def test_metrics_are_served_on_a_second_port() -> None:
    settings = Settings(port=0, metrics_port=free_port())
    app = create_app(make_service(settings=settings, keys=Keys([b"secret"])))
    config = uvicorn.Config(app, port=0, log_level="error", log_config=None, lifespan="off", ws="none")
    server = DrainingServer(config, (), 0, metrics_port=settings.metrics_port)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve_until_drained()), daemon=True)
    thread.start()
    while not server.started or len(server.servers) < 2:
        assert thread.is_alive()
        time.sleep(0.005)
    ports = [each.sockets[0].getsockname()[1] for each in server.servers]

    statuses = [httpx.get(f"http://127.0.0.1:{port}/metrics").status_code for port in ports]
    server.should_exit = True
    thread.join(timeout=10)

    assert [401, 200] == statuses
    assert not thread.is_alive()
