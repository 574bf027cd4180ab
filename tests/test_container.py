"""The Dockerfile builds what we say it builds: read from the file, and linted."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.serving import serving

ROOT = Path(__file__).parents[1]
HADOLINT = Path(sys.executable).parent / "hadolint"

Instruction = tuple[str, str]


def stages() -> list[list[Instruction]]:
    """The instructions of each stage, in order: continued lines joined, comments left out."""
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    lines = re.sub(r"^#.*\n", "", text, flags=re.MULTILINE).replace("\\\n", " ").splitlines()
    found: list[list[Instruction]] = []
    for line in filter(str.strip, lines):
        name, _, rest = line.strip().partition(" ")
        if name == "FROM":
            found.append([])
        found[-1].append((name, rest.strip()))
    return found


def values(name: str, stage: int = -1) -> list[str]:
    return [rest for instruction, rest in stages()[stage] if instruction == name]


def environment(stage: int = -1) -> dict[str, str]:
    pairs = (pair.partition("=") for line in values("ENV", stage) for pair in line.split())
    return {name: value.strip('"') for name, _, value in pairs}


def test_hadolint_finds_nothing() -> None:
    answer = subprocess.run([HADOLINT, ROOT / "Dockerfile"], capture_output=True, text=True, check=False)

    assert (0, "") == (answer.returncode, answer.stdout + answer.stderr)


def test_the_compiler_stays_in_the_first_of_two_stages() -> None:
    assert 2 == len(stages())
    assert "slim" in values("FROM")[0]
    assert ["--from=build /opt/tane /opt/tane"] == values("COPY")


def test_every_image_is_named_with_its_version() -> None:
    assert all(re.search(r":\d", values("FROM", stage)[0]) for stage in (0, 1))


def test_it_runs_as_a_user_without_rights() -> None:
    assert "10001:10001" == values("USER")[-1]
    assert any("useradd --uid 10001" in command for command in values("RUN"))


def test_the_model_is_pulled_by_the_user_that_reads_it() -> None:
    names = [f"{name} {rest}" for name, rest in stages()[-1]]
    pull = next(index for index, line in enumerate(names) if line.startswith("RUN") and "tane pull" in line)

    assert "USER 10001:10001" in names[:pull]
    assert not [line for line in names[pull:] if line.startswith("USER")]


def test_it_listens_on_every_address_inside() -> None:
    assert "0.0.0.0" == environment()["TANE_HOST"]


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
