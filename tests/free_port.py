"""A port on this machine where nobody listens. Always: someone who asks for that very port may still take it first."""

import random
import socket

PORTS = range(10_000, 30_000)
"""Below those that kernels give to connections, and to servers that name no port: none of them comes in between."""
DRAW = random.SystemRandom()
"""Test processes beside each other draw differently, whatever their seeds."""


def free_port() -> int:
    while True:
        port = DRAW.choice(PORTS)
        with socket.socket() as trial:
            try:
                trial.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
