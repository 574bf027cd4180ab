"""`tane info` of a Hugging Face folder: what it holds, what it recommends in vain, or why it is no model."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from service.cli.main import main
from tests.hf_configs import QWEN2_5_0_5B_INSTRUCT_GENERATION
from tests.hf_folders import write_json, write_llama_folder
from tests.tiny_model import IM_END_ID


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = write_llama_folder(tmp_path / "seedling", shards=2)
    write_json(folder / "generation_config.json", {**QWEN2_5_0_5B_INSTRUCT_GENERATION, "eos_token_id": IM_END_ID})
    return folder


def info(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["info", str(folder), *arguments])


def test_the_table_names_what_matters(folder: Path) -> None:
    lines = [line.split() for line in info(folder).stdout.splitlines()]

    assert ["name", "seedling"] in lines
    assert ["architecture", "llama"] in lines
    assert ["end", "of", "text", str(IM_END_ID)] in lines


def test_what_is_recommended_and_not_applied_is_told(folder: Path) -> None:
    shown = info(folder).stdout

    assert "defaults            temperature 0.7, top_k 20, top_p 0.8\n" in shown
    assert "not applied         repetition_penalty 1.1\n" in shown


def test_as_json_it_is_a_list(folder: Path) -> None:
    assert ["repetition_penalty 1.1"] == json.loads(info(folder, "--json").stdout)["defaults"]["not_applied"]


def test_a_folder_that_is_not_implemented_is_refused_in_one_line(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    write_json(folder / "config.json", {**config, "attention_bias": True})

    refused = info(folder)

    assert 2 == refused.exit_code
    assert refused.stderr.endswith(
        "config.json: attention_bias is True, which is not implemented: "
        "biases of its attention would have to be built\n"
    )
