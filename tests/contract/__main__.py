"""The contract: `python -m tests.contract [OPTIONS OF schemathesis run]` tries the OpenAPI document on a server.

A server of a tiny model with keys; every phase, every check. Needs `pip install 'schemathesis>=4.32,<5'`.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from service.settings import Settings
from tests.live import live_server
from tests.source_files import ROOT
from tests.tiny_model import TinyShape, write_tiny_gguf

KEY = "contract-key"
MOST_S = 5
CONTEXT = 64
"""So that a text is soon at its end."""
CONFIG = """
[checks]
positive_data_acceptance.expected-statuses = ["2xx", 400, 404, 409, 422, 504]
not_a_server_error.expected-statuses = ["2xx", "4xx", 504]
"""
"""A body may fit its schema and ask for what cannot be had; `tests.contract.hooks` looks at why it is refused. 504 is
what a deadline of a millisecond is answered with."""
SERVER = {"kv_cache_bytes": 8 << 20, "max_sessions": 16}


def judge(options: Sequence[str]) -> int:
    """The exit code of schemathesis: 0 when nothing was found."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model = write_tiny_gguf(folder / "tiny.gguf", shape=TinyShape(context=CONTEXT))
        (folder / "keys").write_text(KEY, encoding="utf-8")
        settings = SERVER | {"model": str(model), "keys_file": str(folder / "keys")}
        (folder / "schemathesis.toml").write_text(CONFIG, encoding="utf-8")
        with live_server(Settings.load({}, settings)) as server:
            command = [
                *(sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"),
                *("--checks", "all", "--max-response-time", str(MOST_S)),
                *("--header", f"Authorization: Bearer {KEY}"),
                *options,
            ]
            environment = os.environ | {"SCHEMATHESIS_HOOKS": "tests.contract.hooks", "PYTHONPATH": str(ROOT)}
            return subprocess.run(command, check=False, cwd=folder, env=environment).returncode


if __name__ == "__main__":
    sys.exit(judge(sys.argv[1:]))
