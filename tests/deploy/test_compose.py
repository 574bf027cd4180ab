"""The composition is a valid one, and gives no service more than it needs."""

import re
from functools import cache
from typing import Any

import pytest
from compose_spec import PyCompose, PyOptions

from service import __version__
from service.settings import Settings
from tests.container.dockerfile import read_stages
from tests.deploy.files import COMPOSE
from tests.source_files import ROOT


def with_defaults(text: str) -> str:
    """The text as it is where no variable is set."""
    return re.sub(r"\$\{\w+:-([\w./]+)\}", r"\1", text)


@cache
def composition() -> PyCompose:
    return PyOptions(apply_merge=True).from_yaml(with_defaults(COMPOSE.read_text(encoding="utf-8")))


def services() -> dict[str, Any]:
    found: dict[str, Any] = composition().to_dict()["services"]
    return found


NAMES = ("tane", "prometheus", "grafana")
each_service = pytest.mark.parametrize("name", NAMES)


def test_it_is_a_valid_composition_of_these_services() -> None:
    composition().validate()

    assert set(NAMES) == set(services())


def test_a_mistake_in_it_would_be_found() -> None:
    text = with_defaults(COMPOSE.read_text(encoding="utf-8")).replace("stop_grace_period", "stop_grace")

    with pytest.raises(ValueError, match="stop_grace"):
        PyOptions(apply_merge=True).from_yaml(text)


@each_service
def test_a_service_cannot_write_its_image(name: str) -> None:
    assert services()[name]["read_only"] is True


@each_service
def test_a_service_has_no_capabilities_and_can_get_none(name: str) -> None:
    service = services()[name]

    assert (["ALL"], ["no-new-privileges:true"]) == (service["cap_drop"], service["security_opt"])


@each_service
def test_a_service_runs_as_a_user_without_rights(name: str) -> None:
    assert not str(services()[name]["user"]).startswith(("0", "root"))


@each_service
def test_a_service_is_reached_from_this_machine_only(name: str) -> None:
    assert all(str(port).startswith("127.0.0.1:") for port in services()[name]["ports"])


@each_service
def test_a_service_has_bounds(name: str) -> None:
    assert {"mem_limit", "pids_limit", "logging"} <= services()[name].keys()


@each_service
def test_an_image_is_named_with_its_version(name: str) -> None:
    assert re.fullmatch(r"[a-z/]+:v?\d+\.\d+\.\d+", services()[name]["image"])


def test_the_servers_image_is_named_with_this_version() -> None:
    assert f"tane:{__version__}" == services()["tane"]["image"]


@each_service
def test_health_is_asked_for(name: str) -> None:
    in_image = any(instruction == "HEALTHCHECK" for instruction, _ in read_stages()[-1])

    assert "healthcheck" in services()[name] or (name == "tane" and in_image)


def test_files_are_mounted_to_be_read_only() -> None:
    mounts = [mount for service in services().values() for mount in service.get("volumes", ())]

    assert [] == [mount for mount in mounts if str(mount).startswith(".") and not str(mount).endswith(":ro")]


def test_the_user_and_the_port_are_those_of_the_image() -> None:
    image = dict(read_stages()[-1])
    service = services()["tane"]

    assert image["USER"] == service["user"]
    assert [f"127.0.0.1:8000:{image['EXPOSE']}"] == service["ports"]


def test_every_variable_is_an_option_of_the_server() -> None:
    given = services()["tane"]["environment"]

    assert 1 << 30 == Settings.load({name: str(value) for name, value in given.items()}, {}).kv_cache_bytes


def test_the_server_asks_for_the_keys_that_are_mounted_as_a_secret() -> None:
    secrets = composition().to_dict()["secrets"]
    service = services()["tane"]

    assert {"keys": "./keys.txt"} == {name: each["file"] for name, each in secrets.items()}
    assert [f"/run/secrets/{name}" for name in secrets] == [service["environment"]["TANE_KEYS_FILE"]]


def test_the_keys_are_kept_out_of_the_repository() -> None:
    assert "/deploy/keys.txt" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_the_port_for_metrics_is_not_published() -> None:
    service = services()["tane"]

    assert not any(service["environment"]["TANE_METRICS_PORT"] in str(port) for port in service["ports"])


def test_running_requests_have_time_to_finish() -> None:
    seconds = re.fullmatch(r"(\d+)s", services()["tane"]["stop_grace_period"])

    assert seconds is not None
    assert float(seconds[1]) > Settings().drain_s
