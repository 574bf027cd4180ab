"""Studies of a real model: what it says after a prompt, and what its cache costs."""

import json
from math import isclose
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner, Result

from model.loading.gguf import load_gguf
from model.tokenizer import Tokenizer
from service.cli.main import main
from tests.compressed import write_artefact

BAD_NAME = "a\x1b[31m[/b]$x"


@pytest.fixture(scope="module")
def badly_named(tiny_gguf: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = load_gguf(tiny_gguf)
    return write_artefact(tmp_path_factory.mktemp("named") / "model", source, source.tensors, name=BAD_NAME)


def run(name: str, *arguments: str, stdin: str = "") -> Result:
    return CliRunner().invoke(main, ["study", name, *arguments], input=stdin)


def figures(name: str, *arguments: str, stdin: str = "") -> Any:
    result = run(name, *arguments, "--json", stdin=stdin)
    assert 0 == result.exit_code, result.output
    return json.loads(result.stdout)


def test_temperature_looks_at_the_whole_vocabulary_after_the_prompt(tiny_gguf: Path) -> None:
    found = figures("temperature", "--model", str(tiny_gguf), "--prompt", "the seed")

    assert load_gguf(tiny_gguf).config.vocabulary_size == found["vocabulary"]
    assert 5 == len(found["token_ids"]) == len(found["tokens"])
    assert all(isclose(p["slope"], p["measured_slope"], rel_tol=1e-3, abs_tol=1e-9) for p in found["points"])


def test_another_prompt_gives_another_row(tiny_gguf: Path) -> None:
    rows = [figures("temperature", "--model", str(tiny_gguf), "--prompt", prompt) for prompt in ("the seed", "a leaf")]

    assert rows[0]["points"] != rows[1]["points"]


def test_a_prompt_may_come_from_a_pipe(tiny_gguf: Path) -> None:
    named = figures("temperature", "--model", str(tiny_gguf), "--prompt", "the seed")

    assert named == figures("temperature", "--model", str(tiny_gguf), "--prompt", "-", stdin="the seed\n")


def test_truncation_names_the_tokens_of_the_model(tiny_gguf: Path) -> None:
    found = figures("truncation", "--model", str(tiny_gguf), "--top-k", "3", "--top-p", "0.9")

    tokenizer = Tokenizer(load_gguf(tiny_gguf).vocabulary)
    assert ["top_k", "top_p"] == [row["rule"] for row in found["rows"]]
    assert [tokenizer.token_text(each) for each in found["rows"][0]["token_ids"]] == found["rows"][0]["texts"]
    assert all(isclose(row["moved"], 1 - row["mass"], abs_tol=1e-12) for row in found["rows"])


def test_beams_search_what_the_model_says(tiny_gguf: Path) -> None:
    (found,) = figures("beam", "--model", str(tiny_gguf), "--widths", "1,3", "--length", "4")["models"]

    greedy, one, three = found["found"]
    assert greedy["tokens"] == one["tokens"]
    assert greedy["logprob"] <= three["logprob"]
    assert found["best"] is None
    assert {"greedy", "1", "3"} == set(found["texts"])


def test_kv_cost_adds_the_shape_of_the_model(tiny_gguf: Path) -> None:
    config = load_gguf(tiny_gguf).config

    found = figures("kv-cost", "--model", str(tiny_gguf), "--lengths", "10")

    assert 4 == len(found["rows"])
    assert 10 * config.cached_numbers_per_position == found["rows"][-1]["numbers"]
    assert 2 * config.cached_numbers_per_position == found["cache_bytes_per_position"]["float16"]


@pytest.mark.parametrize("name", ["temperature", "truncation", "beam", "kv-cost"])
def test_a_study_of_a_model_has_a_table_and_a_plot(name: str, tiny_gguf: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    shorter = ("--length", "3") if name == "beam" else ()
    prompt = () if name == "kv-cost" else ("--prompt", "for $x$ in")

    result = run(name, "--model", str(tiny_gguf), *prompt, *shorter, "--plot", str(tmp_path / "a.svg"))

    assert 0 == result.exit_code, result.output
    assert load_gguf(tiny_gguf).name in result.stdout
    assert (tmp_path / "a.svg").is_file()


@pytest.mark.parametrize("name", ["temperature", "truncation", "beam", "kv-cost"])
def test_a_models_name_commands_neither_a_terminal_nor_a_plot(name: str, badly_named: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    shorter = ("--length", "3") if name == "beam" else ()

    result = run(name, "--model", str(badly_named), *shorter, "--plot", str(tmp_path / "a.svg"))

    assert 0 == result.exit_code, result.output
    assert "\x1b" not in result.stdout
    assert BAD_NAME.replace("\x1b", "␛") in result.stdout
    ElementTree.parse(tmp_path / "a.svg")


def test_an_empty_prompt_is_refused(tiny_gguf: Path) -> None:
    result = run("temperature", "--model", str(tiny_gguf), "--prompt", "")

    assert (2, "Error: --prompt is empty, and the model needs a token to go on from\n") == (
        result.exit_code,
        result.output,
    )


def test_a_prompt_that_does_not_fit_is_refused(tiny_gguf: Path) -> None:
    result = run("beam", "--model", str(tiny_gguf), "--prompt", "x" * 250, "--length", "60")

    assert 2 == result.exit_code
    assert "do not fit a context of 256" in result.output


@pytest.mark.slow
def test_the_default_model_is_named_by_a_word(default_model_path: Path) -> None:
    found = figures("kv-cost", "--model", "default", "--lengths", "8192")

    assert {"float16": 23_040, "int8": 12_240} == found["cache_bytes_per_position"]
    assert 94_371_840 == found["rows"][-1]["numbers"]


@pytest.mark.slow
def test_a_prompt_alone_asks_the_default_model(default_model_path: Path) -> None:
    found = figures("truncation", "--prompt", "The capital of France is", "--top-k", "1")

    assert [" Paris"] == found["rows"][0]["texts"]
