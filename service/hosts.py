"""By which names a server may be called: a browser's page can have its own name point here (DNS rebinding).

Such a page is then of the server's origin, and reads whatever answers without a key. Knows names and addresses; knows
no paths. Always: a page that is not of this machine cannot be called by a name that is accepted, unless it was allowed;
a request that names no host comes from no browser.
"""

import ipaddress
import re
from collections.abc import Iterable

from service.addresses import is_of_this_machine
from service.errors import HostRefused
from service.settings import Settings

LOCAL = ("localhost", "*.localhost", "127.0.0.1", "[::1]")
"""Names and addresses that lead to the caller's own machine (RFC 6761, section 6.3), with the rest of 127.0.0.0/8."""
ANY = "*"
AUTHORITY = re.compile(r"(\[[0-9a-f:.]+\]|[^\[\]:]+)(?::[0-9]*)?")


class Hosts:
    """The names that are accepted, on any port."""

    def __init__(self, allowed: Iterable[str]) -> None:
        """`*.` before a name stands for all names below it."""
        self._allowed = tuple(dict.fromkeys((*LOCAL, *(name.lower().removesuffix(".") for name in allowed))))

    def check(self, given: Iterable[bytes]) -> None:
        """Raises HostRefused for values of the header `Host` of which one is not accepted."""
        if not all(self._accepts(value.decode("latin-1").strip().lower()) for value in given):
            raise HostRefused(
                "this server does not answer to that name in the header Host; --allowed-host (TANE_ALLOWED_HOST) "
                "can allow it",
                allowed=self._allowed,
            )

    def _accepts(self, value: str) -> bool:
        parts = AUTHORITY.fullmatch(value)
        if parts is None:
            return False
        name = parts[1].removesuffix(".")
        return _is_loopback(name) or any(_fits(name, allowed) for allowed in self._allowed)


def main_hosts(settings: Settings, *, has_keys: bool) -> Hosts | None:
    """Of the main port; None: all, since callers need keys, or anyone may call, or that was said."""
    return _hosts(settings) if settings.allowed_host or (not has_keys and _is_private(settings)) else None


def metrics_hosts(settings: Settings) -> Hosts | None:
    """Of the port for metrics, which asks for no key; who watches a server from elsewhere calls it by its address."""
    return _hosts(settings) if _is_private(settings) else None


def _is_private(settings: Settings) -> bool:
    """Whether nobody but this machine's own programs is meant to call."""
    return not settings.insecure and is_of_this_machine(settings)


def _hosts(settings: Settings) -> Hosts | None:
    if ANY in settings.allowed_host:
        return None
    own = f"[{settings.host}]" if ":" in settings.host else settings.host
    return Hosts((own, *settings.allowed_host))


def _fits(name: str, allowed: str) -> bool:
    if allowed.startswith("*."):
        return name.endswith(allowed[1:])
    return allowed == name


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False
