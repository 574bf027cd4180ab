"""Folders whose weights cannot be what they are said to be are refused with the file and the tensor, never a crash."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from model.loading.checkpoint import ModelFileError
from model.loading.model import load_model
from tests.hf_folders import Arrays, write_arrays, write_json, write_llama_folder
from tests.tiny_model import TinyShape

SHAPE = TinyShape(layers=1, width=32, heads=2, kv_heads=1, feed_forward=32, vocabulary=300)
EMBEDDING = "model.embed_tokens.weight"
QUERY = "model.layers.0.self_attn.q_proj.weight"
INDEX = "model.safetensors.index.json"
FIRST, SECOND = (f"model-{i:05}-of-00002.safetensors" for i in (1, 2))


def write(folder: Path, **others: Any) -> Path:
    return write_llama_folder(folder, shape=SHAPE, **others)


def refusal(folder: Path) -> str:
    with pytest.raises(ModelFileError) as caught:
        load_model(folder)
    assert str(folder) in str(caught.value)
    return str(caught.value)


def _set(name: str, value: Any) -> Callable[[Arrays], object]:
    return lambda arrays: arrays.__setitem__(name, value)


def _named(value: object) -> str:
    """The same in every run, as the address of a function is not."""
    return value if isinstance(value, str) else "changed"


def _spoil(number: float, dtype: type) -> Callable[[Arrays], object]:
    def change(arrays: Arrays) -> None:
        spoiled: NDArray[Any] = arrays[QUERY].astype(dtype)
        spoiled.flat[-1] = number
        arrays[QUERY] = spoiled

    return change


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (_spoil(np.nan, np.float32), f"tensor {QUERY} holds a NaN or an infinity"),
        (_spoil(np.inf, np.float16), f"tensor {QUERY} holds a NaN or an infinity"),
        (_set(QUERY, np.zeros((32, 31), np.float32)), f"tensor {QUERY} has shape (32, 31); expected is (32, 32)"),
        (_set(QUERY, np.zeros(1024, np.float32)), f"tensor {QUERY} has shape (1024,); expected is (32, 32)"),
        (_set(QUERY, np.zeros((32, 32), np.float64)), f"tensor {QUERY} holds F64; supported are F32, F16, BF16"),
        (_set(QUERY, np.zeros((32, 32), np.int32)), f"tensor {QUERY} holds I32; supported are F32, F16, BF16"),
        (lambda arrays: arrays.pop(QUERY), f"tensor {QUERY} is missing"),
        (lambda arrays: arrays.pop(EMBEDDING), f"tensor {EMBEDDING} is missing"),
        (_set("model.layers.1.input_layernorm.weight", np.ones(32, np.float32)), "no llama has it"),
        (_set("model.layers.0.self_attn.q_proj.bias", np.ones(32, np.float32)), "no llama has it"),
        (_set("model.layers.0.self_attn.q_proj.weight_scale", np.ones(1, np.float32)), "no llama has it"),
        (_set("bad\nname", np.ones(1, np.float32)), "tensor 'bad\\nname' is not implemented"),
    ],
    ids=_named,
)
def test_weights_that_are_not_the_decoders_are_refused(
    change: Callable[[Arrays], object], says: str, tmp_path: Path
) -> None:
    assert says in refusal(write(tmp_path / "m", change=change))


def test_frequencies_that_old_files_carry_along_are_no_weights(tmp_path: Path) -> None:
    name = "model.layers.0.self_attn.rotary_emb.inv_freq"

    loaded = load_model(write(tmp_path / "m", change=_set(name, np.full(8, np.nan, np.float32))))

    assert [] == [each for each in loaded.tensors if "freq" in each]


def test_a_stored_head_that_is_the_embedding_is_kept_once(tmp_path: Path) -> None:
    def change(arrays: Arrays) -> None:
        arrays["lm_head.weight"] = arrays[EMBEDDING]

    assert "head" not in load_model(write(tmp_path / "m", change=change)).tensors


@pytest.mark.parametrize("other", [np.float32(2), np.float16(1)], ids=["values", "type"])
def test_a_stored_head_that_should_be_the_embedding_and_is_not_is_refused(other: Any, tmp_path: Path) -> None:
    def change(arrays: Arrays) -> None:
        arrays["lm_head.weight"] = (arrays[EMBEDDING] * other).astype(other.dtype)

    said = refusal(write(tmp_path / "m", change=change))

    assert "tensor lm_head.weight differs from the embedding" in said
    assert "tie_word_embeddings" in said


def test_a_head_of_its_own_must_be_there(tmp_path: Path) -> None:
    assert "tensor lm_head.weight is missing" in refusal(write(tmp_path / "m", config={"tie_word_embeddings": False}))


def _truncate(folder: Path) -> None:
    path = folder / FIRST
    os.truncate(path, path.stat().st_size - 4)


def _huge_header(folder: Path) -> None:
    data = (folder / FIRST).read_bytes()
    (folder / FIRST).write_bytes((1 << 62).to_bytes(8, "little") + data[8:])


def _in_two(folder: Path) -> None:
    shutil.copy(folder / FIRST, folder / "copy.safetensors")
    _change_map(folder, lambda places: places | {"another": "copy.safetensors"})


def _swap(folder: Path) -> None:
    first = (folder / FIRST).read_bytes()
    (folder / FIRST).write_bytes((folder / SECOND).read_bytes())
    (folder / SECOND).write_bytes(first)


def _change_map(folder: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    index = json.loads((folder / INDEX).read_text())
    write_json(folder / INDEX, {**index, "weight_map": change(index["weight_map"])})


def _map(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], object]:
    return lambda folder: _change_map(folder, change)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (_truncate, f"{FIRST}: the tensors end at byte"),
        (_huge_header, f"{FIRST}: the header claims"),
        (lambda folder: (folder / SECOND).unlink(), f"{SECOND}: cannot be opened: No such file"),
        (lambda folder: (folder / SECOND).write_bytes(b""), f"{SECOND}: the length of the header needs 8 bytes"),
        (_in_two, "is here, and model.safetensors.index.json says it is in"),
        (_swap, "is here, and model.safetensors.index.json says it is in"),
        (_map(lambda places: {**places, "another": FIRST}), f"weight_map.another is not in {FIRST}"),
        (_map(lambda places: {k: v for k, v in places.items() if k != QUERY}), f"{INDEX} does not name it"),
        (_map(lambda places: {}), "weight_map is empty"),
        (_map(lambda places: [1]), "weight_map is not an object"),
        (_map(lambda places: {k: f"../{v}" for k, v in places.items()}), "is not the plain name of a safetensors file"),
        (_map(lambda places: dict.fromkeys(places, "/etc/passwd")), "is not the plain name of a safetensors file"),
        (_map(lambda places: dict.fromkeys(places, "..\\x.safetensors")), "is not the plain name"),
        (_map(lambda places: dict.fromkeys(places, "pytorch_model.bin")), "is not the plain name"),
        (_map(lambda places: dict.fromkeys(places, ".safetensors")), "is not the plain name"),
        (_map(lambda places: dict.fromkeys(places, "a\x00.safetensors")), "is not the plain name"),
        (_map(lambda places: dict.fromkeys(places, 1)), "is not the plain name"),
        (
            _map(lambda places: dict.fromkeys(places, "x" * 300 + ".safetensors")),
            "cannot be opened: File name too long",
        ),
        (_map(lambda places: {str(i): f"{i}.safetensors" for i in range(600)}), "names 600 files; allowed are 512"),
        (lambda folder: write_json(folder / INDEX, {"weights": {}}), "weights is not known beside"),
        (lambda folder: (folder / INDEX).write_bytes(b"\xff"), "not valid JSON"),
        (lambda folder: os.mkfifo(folder / "model.safetensors"), "has both"),
    ],
    ids=_named,
)
def test_shards_that_do_not_fit_their_index_are_refused(
    damage: Callable[[Path], object], says: str, tmp_path: Path
) -> None:
    folder = write(tmp_path / "m", shards=2)
    damage(folder)

    assert says in refusal(folder)


def test_shards_hold_the_same_tensors(tmp_path: Path) -> None:
    whole, sharded = load_model(write(tmp_path / "a")), load_model(write(tmp_path / "b", shards=3))

    assert whole.tensors.keys() == sharded.tensors.keys()
    for name in whole.tensors:
        np.testing.assert_array_equal(whole.tensors[name].dequantised(), sharded.tensors[name].dequantised())


def test_links_to_files_elsewhere_are_followed(tmp_path: Path) -> None:
    """As in the cache of the hub's own tools, where a folder holds nothing but links."""
    folder = write(tmp_path / "m", shards=2)
    links = tmp_path / "links"
    links.mkdir()
    for path in folder.iterdir():
        (links / path.name).symlink_to(path)

    assert load_model(folder).sha256 == load_model(links).sha256


@pytest.mark.parametrize(
    ("file", "says"),
    [
        ("pytorch_model.bin", "pickled weights, which may run code and are never read; convert them to safetensors"),
        ("model.pth", "pickled weights"),
        ("tf_model.h5", "another framework's form; convert them to safetensors"),
        ("notes.txt", "has neither model.safetensors nor model.safetensors.index.json"),
    ],
)
def test_a_folder_without_safetensors_says_what_to_do(file: str, says: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    (folder / "model.safetensors").rename(folder / file)

    assert says in refusal(folder)


def test_a_folder_of_something_else_is_no_model(tmp_path: Path) -> None:
    assert "a folder with neither tane.json nor config.json is no model" in refusal(tmp_path)


def test_weights_that_lie_twice_under_two_names_are_refused(tmp_path: Path) -> None:
    """GPT-2's tensors are published with a prefix and without."""
    config = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 4, "n_head": 1, "n_layer": 1}
    write_json(tmp_path / "config.json", {**config, "n_positions": 8, "vocab_size": 4})
    table = np.zeros((4, 4), np.float32)
    write_arrays(tmp_path / "model.safetensors", {"wte.weight": table, "transformer.wte.weight": table})

    assert "tensor transformer.wte.weight is there as wte.weight too" in refusal(tmp_path)


def test_a_file_that_is_written_to_while_it_is_served_is_noticed(tmp_path: Path) -> None:
    folder = write(tmp_path / "m")
    loaded = load_model(folder)
    os.truncate(folder / "model.safetensors", 100)

    with pytest.raises(ModelFileError):
        loaded.tensors["layers.0.query"].rows()
