"""How lean a server is, seen from outside."""

from pathlib import Path

import pytest

from tests.bench.footprint import by_package, import_times, measure, table
from tests.bench.served import served
from tests.tiny_model import write_tiny_gguf


def test_import_times_add_up_by_package() -> None:
    assert {"b": 3.0, "a": 1.5} == by_package([("b.c", 2.0), ("a", 1.5), ("b", 1.0)])


def test_the_table_stands_beside_what_is_allowed() -> None:
    figures = {
        "starts": 5,
        "ready_s": {"median": 1.234, "least": 1.0},
        "memory_bytes": {"resident": 203e6, "own": 150e6, "files": 53e6},
        "heavy_libraries_loaded": [],
        "command": "c",
    }

    rows = table(figures).splitlines()

    assert {"| ready after | 1.23 s | 3 s |", "| resident | 203 MB | 400 MB |"} <= set(rows)


@pytest.mark.slow
def test_a_server_is_measured_from_outside(tmp_path: Path) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf")

    found = measure(1, ("--model", str(model)))

    assert [] == found["heavy_libraries_loaded"]
    assert 20e6 < found["memory_bytes"]["resident"] < 400e6
    assert found["ready_s"]["median"] > 0.1


@pytest.mark.slow
def test_a_server_that_loads_torch_is_found_out(tmp_path: Path) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf")

    with served("--model", str(model), "--engine", "torch") as server:
        assert (True, False) == (server.has_loaded("torch"), server.has_loaded("transformers"))


@pytest.mark.slow
def test_imports_are_timed_in_a_new_interpreter() -> None:
    names = [name for name, _ in import_times()]

    assert {"service.server", "numpy"} <= set(names)
    assert "torch" not in names
