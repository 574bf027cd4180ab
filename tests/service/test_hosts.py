"""By which names a server may be called, and who may call it by any."""

from typing import Any

import pytest

from service.keys import Keys
from service.settings import Settings, SettingsError
from tests.fake_runtime import make_service
from tests.service.door import JSON, Answer, Client
from tests.service.test_guard import METRICS_PORT, through_metrics_port

KEYS = Keys([b"alice"])
EVIL = "evil.example:8000"


def client(keys: Keys | None = None, **settings: Any) -> Client:
    return Client(service=make_service(settings=Settings(**settings), keys=keys))


def called(client: Client, host: str, path: str = "/info") -> Answer:
    return client.request("GET", path, headers={"host": host, "authorization": "Bearer alice"})


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "localhost:8000",
        "LocalHost:",
        "localhost.",
        "page.localhost:3000",
        "127.0.0.1",
        "127.0.0.1:8000",
        "127.8.9.1:1",
        "[::1]",
        "[::1]:8000",
        "[0:0:0:0:0:0:0:1]:8000",
    ],
)
def test_a_server_of_this_machine_is_called_by_its_names(host: str) -> None:
    assert 200 == called(client(), host).status


@pytest.mark.parametrize(
    "host",
    [
        EVIL,
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evillocalhost",
        "0.0.0.0:8000",
        "192.0.2.1",
        "[2001:db8::1]:8000",
        "::1",
        "localhost:80:80",
        "localhost:evil",
        "user@localhost",
        "localhost, evil.example",
        "127.1",
        "",
        "\xe9",
    ],
)
def test_a_server_of_this_machine_without_keys_is_called_by_no_other_name(host: str) -> None:
    answer = called(client(), host)

    assert (421, "host_refused", "permission_error") == (answer.status, answer.error["code"], answer.error["type"])
    assert "--allowed-host" in answer.error["message"]


def test_the_name_that_was_refused_is_not_repeated() -> None:
    answer = called(client(), "canary-77.example")

    assert b"canary-77" not in answer.body


@pytest.mark.parametrize(
    "path", ["/", "/ui/js/main.js", "/info", "/sessions", "/metrics", "/openapi.json", "/v1/models", "/nowhere"]
)
def test_everything_but_health_asks_for_such_a_name(path: str) -> None:
    assert 421 == called(client(), EVIL, path=path).status


def test_a_body_is_not_taken_either() -> None:
    answer = client().post("/generate", {"prompt": "a"}, JSON | {"host": EVIL})

    assert (421, "host_refused") == (answer.status, answer.error["code"])


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_health_is_told_under_any_name(path: str) -> None:
    """Whatever probes a server calls it by an address."""
    assert 200 == called(client(allowed_host=("tane.example",)), EVIL, path=path).status


def test_a_request_that_names_no_host_comes_from_no_browser() -> None:
    assert 200 == client().get("/info").status


def test_the_host_that_it_listens_on_is_a_name_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.hosts.is_of_this_machine", lambda settings: True)

    assert [200, 421] == [called(client(host="tane.home"), host).status for host in ("tane.home:8000", EVIL)]


@pytest.mark.parametrize(
    ("keys", "settings"),
    [
        (KEYS, {}),
        (KEYS, {"host": "0.0.0.0"}),
        (None, {"host": "0.0.0.0", "insecure": True}),
        (None, {"host": "::", "insecure": True}),
        (None, {"insecure": True}),
        (None, {"allowed_host": ("*",)}),
    ],
    ids=range(6),
)
def test_where_keys_are_asked_for_or_anyone_may_call_any_name_will_do(
    keys: Keys | None, settings: dict[str, Any]
) -> None:
    assert 200 == called(client(keys, **settings), EVIL).status


@pytest.mark.parametrize("keys", [KEYS, None], ids=["keys", "none"])
@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0"])
def test_names_that_are_allowed_are_accepted_beside_those_of_this_machine_and_no_others(
    keys: Keys | None, host: str
) -> None:
    named = client(keys, host=host, insecure=True, allowed_host=("Tane.example", "*.tane.example", "[2001:db8::1]"))
    accepted = ("tane.example", "TANE.example:443", "a.b.tane.example", "[2001:DB8::1]:80", "localhost", "127.0.0.1:1")
    refused = ("tane.example.evil", "xtane.example", ".example", "[2001:db8::2]", EVIL)

    assert [200] * 6 == [called(named, each).status for each in accepted]
    assert [421] * 5 == [called(named, each).status for each in refused]


def test_a_name_is_looked_at_before_a_key() -> None:
    answer = client(KEYS, allowed_host=("tane.example",)).request("GET", "/info", headers={"host": EVIL})

    assert 421 == answer.status


@pytest.mark.parametrize(("host", "expected"), [("127.0.0.1", [421, 200]), ("0.0.0.0", [200, 200])])
def test_the_port_for_metrics_is_called_by_any_name_where_other_machines_reach_it(
    host: str, expected: list[int]
) -> None:
    server = client(KEYS, host=host, metrics_port=METRICS_PORT, allowed_host=("tane.example",))

    paths = ("/metrics", "/livez")
    assert expected == [through_metrics_port(server, path, {"host": "10.1.2.3:9100"}).status for path in paths]


def test_names_come_from_flags_or_from_one_variable() -> None:
    names = ("tane.example", "*.tane.example", "[::1]", "192.0.2.1", "*")

    assert names == Settings.load({}, {"allowed_host": names}).allowed_host
    assert names == Settings.load({"TANE_ALLOWED_HOST": " ".join(names)}, {}).allowed_host


@pytest.mark.parametrize("bad", ["tane.example:80", "http://tane.example", "*tane.example", "a.*", "", "a b", "::1"])
def test_what_is_no_name_is_refused(bad: str) -> None:
    flags: dict[str, Any] = {"allowed_host": (bad,)}

    with pytest.raises(SettingsError, match="--allowed-host must be a name or an address as in a URL, without a port"):
        Settings.load({}, flags)
