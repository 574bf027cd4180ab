"""The scaling script measures every point that it is told, and draws them."""

import json
from typing import Any

import pytest
from click.testing import CliRunner

from tests.bench.scaling import PARTS, main, table
from tests.tiny_model import TinyShape, write_tiny_gguf

POINTS = ["--contexts", "16,40", "--streams", "1,2", "--prompts", "8", "--rounds", "1", "--threads", "1"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str]:
    """The figures, and the plot's text."""
    pytest.importorskip("matplotlib")
    folder = tmp_path_factory.mktemp("model")
    model = write_tiny_gguf(folder / "tiny.gguf", shape=TinyShape(context=512), format="Q4_1")
    options = ["--model", str(model), *POINTS, "--plot", str(folder / "plot.svg"), "--json"]
    figures: dict[str, Any] = json.loads(CliRunner().invoke(main, options, catch_exceptions=False).stdout)
    return figures, (folder / "plot.svg").read_text()


def test_every_point_is_measured(ran: tuple[dict[str, Any], str]) -> None:
    bare = ran[0]["bare"]

    assert [[16, 40], [1, 2], [8]] == [[point[part.along] for point in bare[part.name]] for part in PARTS]
    assert all(point[part.value] > 0 for part in PARTS for point in bare[part.name])


def test_the_plot_names_what_it_shows(ran: tuple[dict[str, Any], str]) -> None:
    assert all(part.heading in ran[1] and part.unit in ran[1] for part in PARTS)


def test_http_stands_beside_the_bare_engine() -> None:
    point = {"context": 16, "milliseconds": 4.0}
    stream = {"streams": 8, "tokens_per_second": 1234.5, "client_cpu_share": 0.125}
    bare = {"decode": [point], "streams": [stream], "prefill": [], "threads": 2, "instruction_set": "avx2"}
    http = {"decode": [point | {"context": 64}], "streams": [stream], "prefill": []}
    figures = {"model": "m", "kv_type": "int8", "rounds": 1, "command": "c", "bare": bare, "http": http}

    lines = table(figures).splitlines()

    assert {"| 16 | 4.00 |  |", "| 64 |  | 4.00 |", "| 8 | 1,234 | 1,234 |"} <= set(lines)
    assert "At 8 streams the client took 12 % of a core." in lines[-1]
