"""How an address is written, and that whether it can be listened on is known before anything is loaded."""

import errno
import os
import socket

from service.server import address_problem, place
from service.settings import Settings


def test_an_address_is_written_as_urls_have_it() -> None:
    assert ["127.0.0.1:80", "[::1]:80"] == [place("127.0.0.1", 80), place("::1", 80)]


def test_a_free_port_is_no_problem() -> None:
    assert address_problem(Settings(port=0)) is None


def test_a_taken_port_is_named_with_the_reason() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        problem = address_problem(Settings(port=port))

    assert f"cannot listen on 127.0.0.1:{port}: {os.strerror(errno.EADDRINUSE)}" == problem


def test_a_host_that_is_none_is_named() -> None:
    problem = address_problem(Settings(host="999.1.1.1", port=0))

    assert problem is not None
    assert problem.startswith("cannot listen on 999.1.1.1:0: ")


def test_a_port_that_was_just_left_is_free_again() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)):
            server.accept()[0].close()

    assert address_problem(Settings(port=port)) is None
