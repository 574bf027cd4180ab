"""Where the blocks of a page are run: in order, in a folder of their own, against a real server.

Always: shell blocks stop at the first command that fails, and what a block started has ended when it has.
"""

import contextlib
import io
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from service.cli.main import main
from tests.pages.markdown import Block

REFUSED = 22
"""With what curl ends when the server refuses."""
SHELL = r"""
set -euo pipefail
curl() { command curl --silent --show-error --fail-with-body --max-time 60 "$@"; }
tane() { if [ "$1" = serve ]; then serve "${@:2}"; else command tane "$@"; fi; }
serve() {
    command tane serve --port "$PORT" "$@" > serve.log 2>&1 &
    trap "kill $!; wait $! || true" EXIT
    until command curl --silent --fail --output /dev/null "http://127.0.0.1:$PORT/readyz"; do
        kill -0 $! || { cat serve.log >&2; exit 1; }
        sleep 0.05
    done
}
"""
"""Around a shell block: curl fails where the server refuses, and `tane serve` goes on behind once it is ready."""


@dataclass(frozen=True, slots=True)
class Workshop:
    """`address` is the server's host and port; `free_port` gives a port where nobody listens."""

    folder: Path
    address: str
    free_port: Callable[[], int]
    environment: Mapping[str, str]

    def run(self, block: Block) -> str:
        """The block's standard output. Raises AssertionError where it fails."""
        if block.language == "python":
            return self._python(block)
        commands = alone(block.text)
        return self._commands(commands, block) if commands else self._shell(block)

    def _python(self, block: Block) -> str:
        text = self._addressed(block.text, self.address)
        namespace: dict[str, Any] = {"__name__": "__main__"}
        printed = io.StringIO()
        with contextlib.chdir(self.folder), contextlib.redirect_stdout(printed):
            exec(compile(text, block.place, "exec"), namespace)
            for value in namespace.values():
                if callable(getattr(value, "close", None)) and not isinstance(value, type):
                    value.close()
        return printed.getvalue()

    def _commands(self, commands: list[list[str]], block: Block) -> str:
        """In this process, which has loaded already what most of them need."""
        printed = ""
        for command in commands:
            arguments = [self._addressed(each, self.address) for each in command]
            with contextlib.chdir(self.folder):
                result = CliRunner().invoke(main, arguments, catch_exceptions=False)
            assert 0 == result.exit_code, f"{block.place}: {shlex.join(command)}: {result.output}"
            printed += result.stdout
        return printed

    def _shell(self, block: Block) -> str:
        starts_one = "tane serve" in block.text
        port = str(self.free_port())
        script = SHELL + self._addressed(block.text, f"127.0.0.1:{port}" if starts_one else self.address)
        variables = {**os.environ, **self.environment, "PORT": port}
        variables["PATH"] = f"{Path(sys.executable).parent}:{variables['PATH']}"
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=self.folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        expected = REFUSED if block.mark == "refused" else 0
        assert expected == done.returncode, f"{block.place}: {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout

    def _addressed(self, text: str, address: str) -> str:
        """With the server's address for that of the pages, and free ports for its neighbours'."""
        text = text.replace("127.0.0.1:8000", address)
        for port in (8001, 9100):
            text = text.replace(str(port), str(self.free_port())) if str(port) in text else text
        return text


def alone(text: str) -> list[list[str]]:
    """The arguments of each command of a shell block that calls `tane` and nothing else, once and in plain words."""
    lines = [line.partition(" #")[0] for line in text.replace("\\\n", " ").splitlines() if line.strip()]
    if any(
        not line.startswith("tane ") or line.startswith("tane serve") or set("|<>&;$`") & set(line) for line in lines
    ):
        return []
    return [shlex.split(line)[1:] for line in lines]
