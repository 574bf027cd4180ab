"""Where a server may listen, and who could reach it there.

Knows addresses; nothing of HTTP and models. Always: what is tried is bound for a moment and never listened on.
"""

import errno
import ipaddress
import socket
from typing import Any

from service.settings import Settings


def place(host: str, port: int) -> str:
    """An address as it stands in a URL."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def address_problem(settings: Settings) -> str | None:
    """Why nothing can listen there, if so; tried without listening, so callers are not kept waiting for the model."""
    for port in (settings.port, settings.metrics_port):
        if port is None:
            continue
        try:
            found = _addresses(settings.host, port)
            for family, address in found:
                _try_address(family, address, is_only=len(found) == 1)
        except OSError as error:
            return f"cannot listen on {settings.host}:{port}: {error.strerror}"
    return None


def exposure_problem(settings: Settings) -> str | None:
    """Why these settings may not be served, if so: other machines could call without a key."""
    if settings.metrics_port == settings.port:
        return "--metrics-port must be another port than --port"
    if settings.keys_file is not None or settings.insecure or is_of_this_machine(settings):
        return None
    return (
        f"other machines may reach {settings.host}, and no keys are asked for: give --keys-file, "
        "or --insecure if anyone may call"
    )


def is_of_this_machine(settings: Settings) -> bool:
    """Whether no other machine can reach what listens there; so if nothing can, which is told with its reason."""
    try:
        hosts = [address[0] for _, address in _addresses(settings.host, settings.port)]
    except OSError:
        return True
    return all(ipaddress.ip_address(host.partition("%")[0]).is_loopback for host in hosts)


def _addresses(host: str, port: int) -> list[tuple[int, Any]]:
    """Family and address of everything that the name stands for. Raises OSError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return [(family, address) for family, _, _, _, address in found]


def _try_address(family: int, address: Any, *, is_only: bool) -> None:
    """Bind for a moment. Of several addresses, one that this machine lacks is no fault. Raises OSError."""
    try:
        with socket.socket(family, socket.SOCK_STREAM) as trial:
            trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, True)
            if family == socket.AF_INET6:
                trial.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, True)
            trial.bind(address)
    except OSError as error:
        if is_only or error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
            raise
