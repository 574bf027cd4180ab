"""How an address is written; that whether it can and may be listened on is known before anything is loaded."""

import errno
import os
import socket
from typing import Any

import pytest

from service.addresses import address_problem, exposure_problem, place
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


def test_a_taken_port_for_metrics_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        problem = address_problem(Settings(port=0, metrics_port=port))

    assert f"cannot listen on 127.0.0.1:{port}: {os.strerror(errno.EADDRINUSE)}" == problem


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_this_machine_is_served_without_keys(host: str) -> None:
    assert exposure_problem(Settings(host=host)) is None


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1", "2001:db8::1", "::ffff:192.0.2.1"])
def test_other_machines_are_not_served_without_keys(host: str) -> None:
    problem = exposure_problem(Settings(host=host))

    assert problem is not None
    assert f"other machines may reach {host}, and no keys are asked for" in problem


@pytest.mark.parametrize("settings", [{"keys_file": "keys"}, {"insecure": True}], ids=str)
def test_keys_or_a_word_of_consent_open_the_door(settings: dict[str, Any]) -> None:
    assert exposure_problem(Settings(host="0.0.0.0", **settings)) is None


def test_metrics_have_a_port_of_their_own() -> None:
    assert "--metrics-port must be another port than --port" == exposure_problem(Settings(port=81, metrics_port=81))
