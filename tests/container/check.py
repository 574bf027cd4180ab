"""Builds the image's file system by the Dockerfile's own steps, runs it as `docker run --read-only` would, and asks it.

Always: the server runs as the image's user on a tree that it cannot write, and each claim is checked on that process.
"""

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import httpx

from service.cli.console import Unusable, write_json
from tests.container.dockerfile import read_stages
from tests.container.rootfs import Running, Stage, build, entering, running, size_of
from tests.free_port import free_port

READY_S = 60.0
POLL_S = 0.02
TOOLS = ("debootstrap", "unshare", "chroot", "setpriv", "curl")
PROMPT = {"prompt": "The capital of France is", "temperature": 0, "max_new_tokens": 16}
LONG = {"prompt": "Once upon a time", "max_new_tokens": 200, "ignore_eos": True, "seed": 1, "stream": True}
UNWRITABLE = ("/", "/opt/tane", "/models", "/etc", "/var/tmp")


class Checks:
    """Claims and whether they hold, in the order in which they were looked at."""

    def __init__(self) -> None:
        self.found: dict[str, bool] = {}

    def __call__(self, claim: str, holds: bool) -> None:
        self.found[claim] = holds


def check_process(checks: Checks, server: Running, stage: Stage) -> None:
    status = server.status()
    uid, gid = stage.user.split(":")
    checks("the user is the image's", (status["Uid"].split()[0], status["Gid"].split()[0]) == (uid, gid))
    checks("it is process 1", status["NSpid"].split()[-1] == "1")
    checks("it has no capabilities", {int(status[name], 16) for name in ("CapEff", "CapPrm", "CapBnd")} == {0})
    checks("it can get no privileges", status["NoNewPrivs"] == "1")
    maps = Path(f"/proc/{server.process_id}/maps").read_text(encoding="utf-8")
    checks("torch is not in the process", "/torch/" not in maps)


def check_writes(checks: Checks, run: Callable[..., int]) -> None:
    for folder in UNWRITABLE:
        checks(f"{folder} cannot be written", run("/bin/sh", "-c", f": > {folder}/x") != 0)
    checks("/tmp can be written", run("/bin/sh", "-c", ": > /tmp/x") == 0)


def check_answers(checks: Checks, url: str, figures: dict[str, Any]) -> None:
    answer = subprocess.run(
        [
            "curl",
            "--silent",
            "--fail",
            f"{url}/generate",
            "-H",
            "content-type: application/json",
            "-d",
            json.dumps(PROMPT),
        ],
        capture_output=True,
        check=False,
    )
    figures["text"] = json.loads(answer.stdout)["text"] if answer.returncode == 0 else ""
    checks("curl gets text", bool(figures["text"].strip()))
    checks("/metrics answers", "tane_generated_tokens_total" in httpx.get(f"{url}/metrics").text)


def check_end(checks: Checks, server: Running, stage: Stage, url: str) -> None:
    """A stream that runs when the stop signal comes is sent to its end."""
    with httpx.stream("POST", f"{url}/generate", json=LONG, timeout=60) as answer:
        lines = answer.iter_lines()
        next(lines)
        os.kill(server.process_id, signal.Signals[stage.words["STOPSIGNAL"]])
        rest = [line for line in lines if line]
    checks("a running stream is finished after the stop signal", rest[-1] == "data: [DONE]")
    checks("it ends with exit code 0", server.process.wait(timeout=30) == 0)


def wait_until_ready(server: Running, url: str) -> float:
    """Seconds until /readyz is 200. Raises RuntimeError when it does not become so."""
    started = time.monotonic()
    while time.monotonic() - started < READY_S and server.process.poll() is None:
        try:
            if httpx.get(f"{url}/readyz").status_code == httpx.codes.OK:
                return time.monotonic() - started
        except httpx.TransportError:
            pass
        time.sleep(POLL_S)
    raise RuntimeError("/readyz did not turn 200")


def check(stage: Stage, model: Path | None) -> dict[str, Any]:
    """Run the image's command on a read-only tree, and look at it from outside and inside."""
    port = free_port()
    environment = stage.environment | {"TANE_PORT": str(port), "TANE_HOST": "127.0.0.1"}
    binds: dict[Path, Path] = {}
    if model is not None:
        environment["TANE_MODEL"] = "/models/mounted.gguf"
        binds = {model: Path("/models/mounted.gguf")}

    def command_line(*command: str) -> list[str]:
        return entering(stage, command, environment, read_only=True, binds=binds)

    def run(*command: str) -> int:
        return subprocess.run(command_line(*command), check=False, capture_output=True).returncode

    checks = Checks()
    figures: dict[str, Any] = {}
    entry = [*json.loads(stage.words["ENTRYPOINT"]), *json.loads(stage.words["CMD"])]
    health = json.loads(stage.words["HEALTHCHECK"].partition("CMD")[2])
    check_writes(checks, run)
    checks("it is unhealthy before it runs", run(*health) != 0)
    stamp = time.time()
    with running(command_line(*entry)) as server:
        url = f"http://127.0.0.1:{port}"
        figures["ready_s"] = wait_until_ready(server, url)
        checks("/readyz turns 200", True)
        checks("it is healthy", run(*health) == 0)
        check_process(checks, server, stage)
        check_answers(checks, url, figures)
        left = [path.name for path in Path(f"/proc/{server.process_id}/root/tmp").iterdir()]
        checks("nothing is written, in /tmp either", not left and not changed_since(stage.root, stamp))
        check_end(checks, server, stage, url)
    return {**figures, "bytes": sizes(stage), "checks": checks.found}


def changed_since(root: Path, stamp: float) -> list[str]:
    """Files of the tree that were written after this time."""
    answer = subprocess.run(
        ["find", root, "-xdev", "-type", "f", "-newermt", f"@{stamp}"], capture_output=True, text=True, check=True
    )
    return answer.stdout.split()


def sizes(stage: Stage) -> dict[str, int]:
    places = {"whole tree": ".", "/opt/tane": "opt/tane", "/models": "models"}
    return {name: size_of(stage.root / place) for name, place in places.items()}


def _pair(value: str) -> tuple[str, str]:
    name, sign, rest = value.partition("=")
    if not sign:
        raise click.BadParameter("must be NAME=VALUE")
    return name, rest


@click.command()
@click.option("--build-arg", "arguments", multiple=True, metavar="NAME=VALUE", help="As of `docker build`.")
@click.option("--model", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="A model file to mount.")
@click.option(
    "--bind", "binds", multiple=True, type=click.Path(exists=True, path_type=Path), help="Seen while building."
)
@click.option(
    "--work", type=click.Path(path_type=Path), help="Where to work and what to keep; default: a folder for now."
)
def main(arguments: tuple[str, ...], model: Path | None, binds: tuple[Path, ...], work: Path | None) -> None:
    """Carry out the Dockerfile's steps without a container engine, and check the server that comes of them.

    \b
    Needs root, debootstrap and curl. Examples:
      python -m tests.container.check
      python -m tests.container.check --build-arg PULL=0 --model my.gguf --work /var/tmp/tane-rootfs
    """
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if os.geteuid() != 0 or missing:
        raise Unusable(f"needs root, and the commands {', '.join(missing or TOOLS)}")
    with tempfile.TemporaryDirectory() as own:
        folder = work or Path(own)
        folder.mkdir(parents=True, exist_ok=True)
        stage = build(read_stages(), folder.resolve(), dict(map(_pair, arguments)), binds)
        figures = check(stage, model.resolve() if model else None)
    write_json(figures)
    raise click.exceptions.Exit(0 if all(figures["checks"].values()) else 1)


if __name__ == "__main__":
    main()
