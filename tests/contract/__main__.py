"""The contract: `python -m tests.contract [OPTIONS OF schemathesis run]` tries the OpenAPI document on a server.

A server of a tiny model with keys; every phase, every check. Needs `pip install 'schemathesis>=4.32,<5'`.
"""

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from service.settings import Settings
from tests.live import live_server
from tests.tiny_model import TinyShape, write_tiny_gguf

KEY = "contract-key"
MOST_S = 5
SERVER = {"kv_cache_bytes": 8 << 20, "max_sessions": 16}


def judge(options: Sequence[str]) -> int:
    """The exit code of schemathesis: 0 when nothing was found."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model = write_tiny_gguf(folder / "tiny.gguf", shape=TinyShape(context=512))
        (folder / "keys").write_text(KEY, encoding="utf-8")
        settings = SERVER | {"model": str(model), "keys_file": str(folder / "keys")}
        with live_server(Settings.load({}, settings)) as server:
            command = [
                *(sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"),
                *("--checks", "all", "--max-response-time", str(MOST_S)),
                *("--header", f"Authorization: Bearer {KEY}"),
                *options,
            ]
            return subprocess.run(command, check=False, cwd=folder).returncode


if __name__ == "__main__":
    sys.exit(judge(sys.argv[1:]))
