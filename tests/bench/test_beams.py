"""The cost of a step of beams stands beside that of a greedy step, and beside what is allowed."""

import json
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from tests.bench.beams import main, table
from tests.tiny_model import write_tiny_gguf

OPTIONS = ["--widths", "2,4", "--rounds", "1", "--new-tokens", "4", "--prompt-tokens", "5", "--threads", "1"]


def test_every_width_is_measured_over_a_greedy_step(tmp_path: Path) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf", format="Q4_1")

    ran = CliRunner().invoke(main, ["--model", str(model), *OPTIONS, "--json"], catch_exceptions=False)

    figures: dict[str, Any] = json.loads(ran.stdout)
    assert [1, 2, 4] == [point["width"] for point in figures["widths"]]
    assert 1.0 == figures["widths"][0]["over_greedy"]
    assert all(point["milliseconds"] > 0 for point in figures["widths"])


def test_the_table_says_what_is_allowed() -> None:
    points = [
        {"width": width, "milliseconds": 5.0 * width, "least_milliseconds": 4.0, "over_greedy": float(width)}
        for width in (1, 2, 8)
    ]
    figures = {
        "widths": points,
        "model": "m",
        "prompt_tokens": 1,
        "new_tokens": 2,
        "instruction_set": "avx2",
        "rounds": 3,
        "command": "c",
    }

    rows = set(table(figures).splitlines())

    assert {"| greedy | 5.00 | 1.00 |  |", "| 2 | 10.00 | 2.00 |  |", "| 8 | 40.00 | 8.00 | 3.5 |"} <= rows
