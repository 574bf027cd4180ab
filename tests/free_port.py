"""A port on this machine where nobody listens. Always: someone else may take it before it is used."""

import socket


def free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        port: int = trial.getsockname()[1]
        return port
