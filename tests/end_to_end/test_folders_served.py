"""A Hugging Face folder is served as a file is, by both op sets."""

from pathlib import Path

import pytest

from service.settings import Settings
from tests.hf_folders import save_tiny_model, write_llama_folder
from tests.live import live_server

pytestmark = pytest.mark.slow
PROMPT = "The seed lies in the ground"


def settings_for(folder: Path, engine: str) -> Settings:
    return Settings.load({}, {"model": str(folder), "engine": engine, "kv_cache_bytes": 4 << 20})


@pytest.mark.parametrize("engine", ["torch", "native"])
@pytest.mark.parametrize("name", ["mistral, window", "qwen2", "gemma3", "gpt2"])
def test_models_of_every_family_continue_a_text(name: str, engine: str, tmp_path: Path) -> None:
    save_tiny_model(tmp_path, name, dtype="bfloat16", max_shard_size="50KB")

    with live_server(settings_for(tmp_path, engine)) as server, server.client() as client:
        answer = client.post("/generate", json={"prompt": PROMPT, "max_new_tokens": 12, "ignore_eos": True}).json()

    assert 12 == len(answer["token_ids"])


@pytest.mark.parametrize("engine", ["torch", "native"])
def test_a_folder_answers_chats_under_its_name(engine: str, tmp_path: Path) -> None:
    folder = write_llama_folder(tmp_path / "seedling", shards=2)
    chat = {"messages": [{"role": "user", "content": PROMPT}], "max_tokens": 5, "model": "seedling"}

    with live_server(settings_for(folder, engine)) as server, server.client() as client:
        answer = client.post("/v1/chat/completions", json=chat).json()

    assert "seedling" == answer["model"]
    assert 5 >= answer["usage"]["completion_tokens"] > 0
