"""Sampling defaults, ends of text, chat template, name and hash of a Hugging Face folder."""

from pathlib import Path
from typing import Any

import pytest

from model.loading.checkpoint import MAX_TEMPLATE_BYTES, GenerationDefaults, ModelFileError
from model.loading.hf_folder import folder_name
from model.loading.hf_text import read_ends, read_generation_defaults, read_template
from model.loading.json_keys import JsonKeys
from model.loading.model import load_model
from tests import hf_configs as published
from tests.hf_folders import write_json, write_llama_folder
from tests.tiny_model import CHAT_TEMPLATE, TinyShape

SHAPE = TinyShape(layers=1, width=32, heads=2, kv_heads=1, feed_forward=32, vocabulary=300)


def keys_of(folder: Path, values: Any) -> JsonKeys:
    write_json(folder / "generation_config.json", values)
    return JsonKeys.read(folder / "generation_config.json", 1 << 20)


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (
            published.QWEN2_5_0_5B_INSTRUCT_GENERATION,
            GenerationDefaults(0.7, 20, 0.8, not_applied=("repetition_penalty 1.1",)),
        ),
        (published.GEMMA_3_GENERATION, GenerationDefaults(top_k=64, top_p=0.95)),
        (published.GPT_2_GENERATION, GenerationDefaults()),
        ({"do_sample": True, "temperature": 0.6, "min_p": 0.05}, GenerationDefaults(temperature=0.6, min_p=0.05)),
        ({"temperature": 0.6}, GenerationDefaults(temperature=0.6)),
        ({"repetition_penalty": 1.0, "num_beams": 1, "typical_p": 1, "suppress_tokens": None}, GenerationDefaults()),
        (
            {"num_beams": 4, "max_new_tokens": 20, "odd": [1]},
            GenerationDefaults(not_applied=("num_beams 4", "max_new_tokens 20", "odd [1]")),
        ),
    ],
)
def test_sampling_defaults_are_read_and_others_are_named(
    said: Any, expected: GenerationDefaults, tmp_path: Path
) -> None:
    assert expected == read_generation_defaults(keys_of(tmp_path, said))


def test_a_model_that_does_not_sample_takes_the_likeliest_token(tmp_path: Path) -> None:
    said = {"do_sample": False, "temperature": 0.6, "top_p": 0.9}

    assert GenerationDefaults(temperature=0.0) == read_generation_defaults(keys_of(tmp_path, said))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("temperature", "0.7"),
        ("temperature", -1),
        ("temperature", 10**400),
        ("top_p", 0),
        ("top_p", 1.5),
        ("top_k", -1),
        ("top_k", 2.5),
        ("min_p", 2),
        ("do_sample", 1),
    ],
)
def test_sampling_defaults_that_cannot_be_are_refused_by_key(key: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match=rf"generation_config\.json: {key} is"):
        read_generation_defaults(keys_of(tmp_path, {key: value}))


@pytest.mark.parametrize(("said", "ends"), [(None, set()), (5, {5}), ([5, 7, 5], {5, 7}), ([], set())])
def test_ends_are_one_id_or_a_list(said: Any, ends: set[int], tmp_path: Path) -> None:
    assert ends == read_ends(keys_of(tmp_path, {"eos_token_id": said}), 10)


@pytest.mark.parametrize("said", [-1, 10, "5", True, [5, 10], [[5]], {"a": 5}, 1.0, list(range(10)) * 7])
def test_ends_that_cannot_be_are_refused(said: Any, tmp_path: Path) -> None:
    with pytest.raises(ModelFileError, match="eos_token_id is not one id, or a list"):
        read_ends(keys_of(tmp_path, {"eos_token_id": said}), 10)


def test_ends_of_all_files_end_a_text(tmp_path: Path) -> None:
    folder = write_llama_folder(tmp_path / "m", shape=SHAPE, config={"eos_token_id": 5})
    write_json(folder / "generation_config.json", {"eos_token_id": [7, 8]})

    assert {2, 5, 7, 8} == load_model(folder).vocabulary.eos_token_ids


def test_a_folder_without_generation_config_names_no_defaults(tmp_path: Path) -> None:
    assert GenerationDefaults() == load_model(write_llama_folder(tmp_path / "m", shape=SHAPE)).defaults


@pytest.mark.parametrize(
    ("files", "template"),
    [
        ({}, None),
        ({"tokenizer_config.json": {}}, None),
        ({"tokenizer_config.json": {"chat_template": "a"}}, "a"),
        ({"tokenizer_config.json": {"chat_template": "a"}, "chat_template.json": {"chat_template": "b"}}, "a"),
        ({"tokenizer_config.json": {}, "chat_template.json": {"chat_template": "b"}}, "b"),
        (
            {
                "tokenizer_config.json": {
                    "chat_template": [{"name": "tools", "template": "t"}, {"name": "default", "template": "d"}]
                }
            },
            "d",
        ),
    ],
)
def test_the_chat_template_is_found(files: dict[str, Any], template: str | None, tmp_path: Path) -> None:
    for name, values in files.items():
        write_json(tmp_path / name, values)

    assert template == read_template(tmp_path)


def test_a_template_in_a_file_of_its_own_comes_first(tmp_path: Path) -> None:
    write_json(tmp_path / "tokenizer_config.json", {"chat_template": "a"})
    (tmp_path / "chat_template.jinja").write_text("jinja {{ 'ü' }}", encoding="utf-8")

    assert "jinja {{ 'ü' }}" == read_template(tmp_path)


@pytest.mark.parametrize(
    ("said", "says"),
    [
        (5, "chat_template is not a list"),
        (["a"], "chat_template is not a string or a list of objects"),
        ([], "chat_template names 0 templates 'default'; it must be one"),
        ([{"name": "default", "template": "a"}] * 2, "chat_template names 2 templates 'default'"),
        ([{"name": "default"}], "chat_template.template is missing"),
        ("x" * (MAX_TEMPLATE_BYTES + 1), "chat_template is 65537 bytes long"),
    ],
    ids=str,
)
def test_a_template_that_cannot_be_is_refused(said: Any, says: str, tmp_path: Path) -> None:
    write_json(tmp_path / "tokenizer_config.json", {"chat_template": said})

    with pytest.raises(ModelFileError, match=says):
        read_template(tmp_path)


@pytest.mark.parametrize("data", [b"\xff", b"x" * (MAX_TEMPLATE_BYTES + 1)], ids=["bytes", "long"])
def test_a_template_file_that_cannot_be_is_refused(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "chat_template.jinja").write_bytes(data)

    with pytest.raises(ModelFileError, match=r"chat_template\.jinja"):
        read_template(tmp_path)


def test_the_folder_says_what_a_chat_looks_like(tmp_path: Path) -> None:
    assert CHAT_TEMPLATE == load_model(write_llama_folder(tmp_path / "m", shape=SHAPE)).chat_template


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/models/SmolLM2", "SmolLM2"),
        ("/hub/models--google--gemma-3-270m/snapshots/9b0cfec8", "gemma-3-270m"),
        ("/snapshots/abc", "abc"),
        ("/", "model"),
    ],
)
def test_a_model_is_called_as_its_folder(path: str, name: str) -> None:
    assert name == folder_name(Path(path))


CHANGES = {
    "config.json": {"rms_norm_eps": 0.5},
    "generation_config.json": {"temperature": 0.5},
    "chat_template.jinja": "another",
    "special_tokens_map.json": {"unk_token": "<|endoftext|>"},
}


@pytest.mark.parametrize("file", CHANGES)
def test_every_file_that_matters_changes_the_hash(file: str, tmp_path: Path) -> None:
    before = load_model(write_llama_folder(tmp_path / "a", shape=SHAPE)).sha256
    config = CHANGES[file] if file == "config.json" else {}
    folder = write_llama_folder(tmp_path / "b", shape=SHAPE, config=config)  # type: ignore[arg-type]
    if not config:
        write_json(folder / file, CHANGES[file])

    assert before != load_model(folder).sha256


def test_weights_change_the_hash(tmp_path: Path) -> None:
    def change(arrays: dict[str, Any]) -> None:
        arrays["model.norm.weight"] = arrays["model.norm.weight"] + 1

    plain = load_model(write_llama_folder(tmp_path / "a", shape=SHAPE))
    changed = load_model(write_llama_folder(tmp_path / "b", shape=SHAPE, change=change))

    assert plain.sha256 != changed.sha256


def test_other_files_and_places_leave_the_hash(tmp_path: Path) -> None:
    first = write_llama_folder(tmp_path / "a", shape=SHAPE)
    second = write_llama_folder(tmp_path / "b", shape=SHAPE)
    (second / "README.md").write_text("A model.")

    assert load_model(first).sha256 == load_model(second).sha256
