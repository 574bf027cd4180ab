"""The Dockerfile builds what we say it builds: read from the file, and linted."""

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from service.addresses import exposure_problem
from service.settings import Settings
from tests.container.dockerfile import pairs, read_stages
from tests.serving import serving
from tests.source_files import ROOT

HADOLINT = Path(sys.executable).parent / "hadolint"


def values(name: str, stage: int = -1) -> list[str]:
    return [rest for instruction, rest in read_stages()[stage] if instruction == name]


def environment(stage: int = -1) -> dict[str, str]:
    return {name: value for line in values("ENV", stage) for name, value in pairs(line).items()}


def test_hadolint_finds_nothing() -> None:
    answer = subprocess.run([HADOLINT, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)

    assert (0, "") == (answer.returncode, answer.stdout + answer.stderr)


def test_the_compiler_stays_in_the_first_of_two_read_stages() -> None:
    assert 2 == len(read_stages())
    assert "slim" in values("FROM")[0]
    assert ["--from=build /opt/tane /opt/tane"] == values("COPY")


def test_every_image_is_named_with_its_version() -> None:
    assert all(re.search(r":\d", values("FROM", stage)[0]) for stage in (0, 1))


def test_it_runs_as_a_user_without_rights() -> None:
    assert "10001:10001" == values("USER")[-1]
    assert any("useradd --uid 10001" in command for command in values("RUN"))


def test_the_model_is_pulled_by_the_user_that_reads_it() -> None:
    names = [f"{name} {rest}" for name, rest in read_stages()[-1]]
    pull = next(index for index, line in enumerate(names) if line.startswith("RUN") and "tane pull" in line)

    assert "USER 10001:10001" in names[:pull]
    assert not [line for line in names[pull:] if line.startswith("USER")]


def run_in_shell(command: str, **variables: str) -> tuple[int, str]:
    answer = subprocess.run(
        ["/bin/sh", "-c", command], env=variables, cwd=ROOT, capture_output=True, text=True, check=False
    )
    return answer.returncode, answer.stdout


@pytest.mark.parametrize(("pull", "expected"), [("1", (0, "pull\n")), ("0", (0, "")), ("yes", (1, ""))])
def test_the_model_may_be_left_out(tmp_path: Path, pull: str, expected: tuple[int, str]) -> None:
    tane = tmp_path / "tane"
    tane.write_text('#!/bin/sh\necho "$@"\n', encoding="utf-8")
    tane.chmod(0o755)

    assert expected == run_in_shell(values("RUN")[-1], PULL=pull, PATH=str(tmp_path))


def requirements(torch: str) -> tuple[int, list[str]]:
    """What the first stage would install, told by its own command."""
    program = re.search(r'python (-c ".*?" "\$TORCH") > /requirements.txt', values("RUN", 0)[0])
    assert program is not None
    code, output = run_in_shell(f"{sys.executable} {program[1]}", TORCH=torch)
    return code, output.splitlines()


def test_torch_alone_is_left_out_of_what_is_installed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["tracing"]]

    assert (0, needed) == requirements("1")
    assert (0, [each for each in needed if not each.startswith("torch")]) == requirements("0")
    assert (1, []) == requirements("perhaps")


def test_no_argument_of_the_build_is_taken_for_an_option_of_the_server() -> None:
    names = [name for stage in (0, 1) for line in values("ARG", stage) for name in pairs(line)]

    assert {"TORCH", "PULL"} < set(names)
    assert [] == [name for name in names if name.startswith("TANE_")]


def test_the_variables_are_options_of_the_server() -> None:
    settings = Settings.load(environment(), {})

    assert ("0.0.0.0", 8000, Path("/models")) == (settings.host, settings.port, settings.models_folder)


def test_nothing_is_written_beside_the_code_or_in_a_home_that_cannot_be() -> None:
    found = environment()

    assert ("1", "1", "/tmp") == (found["PYTHONDONTWRITEBYTECODE"], found["PIP_NO_CACHE_DIR"], found["HOME"])


def test_it_is_stopped_by_the_signal_that_drains() -> None:
    assert ["SIGTERM"] == values("STOPSIGNAL")


def test_it_listens_on_every_address_inside() -> None:
    assert "0.0.0.0" == environment()["TANE_HOST"]


def test_it_serves_no_one_without_keys() -> None:
    assert exposure_problem(Settings.load(environment(), {})) is not None


@pytest.mark.parametrize("given", [{"TANE_KEYS_FILE": "/run/secrets/keys"}, {"TANE_INSECURE": "1"}], ids=str)
def test_keys_or_consent_are_given_as_a_variable(given: dict[str, str]) -> None:
    assert exposure_problem(Settings.load(environment() | given, {})) is None


def test_the_port_exposed_is_the_port_served() -> None:
    assert [environment()["TANE_PORT"]] == values("EXPOSE") == ["8000"]


def test_it_serves_by_default_and_gets_signals_itself() -> None:
    assert [["tane"]] == [json.loads(value) for value in values("ENTRYPOINT")]
    assert [["serve"]] == [json.loads(value) for value in values("CMD")]


def test_no_download_cache_stays_behind() -> None:
    assert "1" == environment(0)["PIP_NO_CACHE_DIR"]
    assert not [command for command in values("RUN") if "pip install" in command]


def health_check() -> list[str]:
    (line,) = values("HEALTHCHECK")
    command: list[str] = json.loads(line.partition("CMD")[2])
    return command


def test_health_is_asked_without_other_programs() -> None:
    assert ["python", "-c"] == health_check()[:2]


@pytest.mark.parametrize(("status", "exit_code"), [(200, 0), (503, 1)])
def test_health_is_what_readyz_says(status: int, exit_code: int) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        answered = status if scope["path"] == "/readyz" else 404
        await send({"type": "http.response.start", "status": answered, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    with serving(app) as url:
        program = [sys.executable, *health_check()[1:]]
        port = url.rpartition(":")[2]
        answer = subprocess.run(program, env={"TANE_PORT": port}, capture_output=True, check=False)

    assert exit_code == answer.returncode


def test_the_build_sees_what_the_wheel_is_made_of_and_no_more() -> None:
    lines = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    allowed = {line.removeprefix("!") for line in lines if line.startswith("!")}
    copied = {name for line in values("COPY", 0) for name in line.split()[:-1]}

    assert "*" in lines
    assert allowed == copied
