"""A compressed model's folder: everything comes back bit for bit, takes what the formula says, and stands alone."""

import dataclasses
import json
import resource
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from model.compression.artefact_writer import ArtefactWriter
from model.compression.matrix import GridMatrix
from model.compression.packing import grid_bytes
from model.compression.stored import Weights
from model.loading.checkpoint import Checkpoint, GenerationDefaults, ModelFileError
from model.loading.model import load_model
from model.loading.safetensors import read_safetensors
from tests.block_formats import SCALES, UNWRITTEN
from tests.compressed import (
    RECIPE,
    WIDE,
    grids_for,
    random_grid,
    random_sparse,
    tiny_source,
    write_artefact,
)
from tests.tiny_model import EVERY_FORMAT, FOR_EVERY_FORMAT, FormatName, TinyShape

FORMS: dict[str, dict[str, Any]] = {
    **{f"{bits} bits": {"bits": bits} for bits in range(1, 9)},
    "groups of 64": {"group": 64},
    "groups of 96": {"group": 96},
    "groups of 16": {"group": 16},
    "whole rows": {"group": 192},
    "float32 scales": {"scale_type": np.float32},
    "an exact zero": {"zero": 5},
    "symmetric with float16 offsets": {"zero": 8, "offset_type": np.float16},
    "half pruned": {"zero": 5, "pruned": 0.5},
    "half pruned at 3 bits": {"bits": 3, "zero": 4, "pruned": 0.5},
    "all but a few pruned": {"bits": 8, "zero": 200, "pruned": 0.99},
    "pruned with float32 scales": {"zero": 3, "pruned": 0.5, "scale_type": np.float32},
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return tiny_source(tmp_path_factory.mktemp("source"))


@pytest.mark.parametrize("form", FORMS)
def test_grids_come_back_bit_for_bit(tmp_path: Path, source: Checkpoint, form: str) -> None:
    weights = grids_for(source, **FORMS[form])

    loaded = load_model(write_artefact(tmp_path / "x", source, weights))

    assert {name: each.dequantised().tobytes() for name, each in weights.items()} == {
        name: tensor.dequantised().tobytes() for name, tensor in loaded.tensors.items()
    }


@pytest.mark.parametrize("form", FORMS)
def test_codes_scales_and_masks_come_back(tmp_path: Path, source: Checkpoint, form: str) -> None:
    weights = grids_for(source, **FORMS[form])
    expected = weights["layers.1.down"]
    assert isinstance(expected, GridMatrix)

    tensor = load_model(write_artefact(tmp_path / "x", source, weights)).tensors["layers.1.down"]

    assert tensor.grid is not None
    assert _fields(expected) == _fields(tensor.grid())


def _fields(grid: GridMatrix) -> list[Any]:
    fields = [getattr(grid, field.name) for field in dataclasses.fields(grid)]
    return [(str(each.dtype), each.tolist()) if isinstance(each, np.ndarray) else each for each in fields]


@pytest.mark.parametrize("form", FORMS)
def test_a_matrix_takes_what_the_formula_says(tmp_path: Path, source: Checkpoint, form: str) -> None:
    grid = random_grid((192, 192), **FORMS[form])
    folder = write_artefact(tmp_path / "x", source, {**source.tensors, "layers.0.gate": grid})
    kept = None if grid.mask is None else int(grid.mask.sum())

    entries = read_safetensors(folder / "model.safetensors").entries

    assert grid_bytes(
        192,
        192,
        grid.bits,
        grid.group,
        scale_bits=8 * grid.scales.dtype.itemsize,
        offset_bits=grid.bits if "zero" in FORMS[form] else 8 * grid.offsets.dtype.itemsize,
        kept=kept,
    ) == sum(entry.byte_count for name, entry in entries.items() if name.startswith("layers.0.gate."))


def test_the_bytes_of_a_tensor_are_told(tmp_path: Path, source: Checkpoint) -> None:
    folder = write_artefact(tmp_path / "x", source, grids_for(source, bits=3, group=64))
    entries = read_safetensors(folder / "model.safetensors").entries

    assert sum(entry.byte_count for entry in entries.values()) == sum(
        tensor.stored_bytes for tensor in load_model(folder).tensors.values()
    )


def test_pruned_floats_come_back_bit_for_bit(tmp_path: Path, source: Checkpoint) -> None:
    sparse = random_sparse((192, 192))

    loaded = load_model(write_artefact(tmp_path / "x", source, {**source.tensors, "layers.0.up": sparse}))

    assert sparse.dequantised().tobytes() == loaded.tensors["layers.0.up"].dequantised().tobytes()


def test_pruned_floats_take_no_room_but_a_bit(tmp_path: Path, source: Checkpoint) -> None:
    sparse = random_sparse((192, 192))

    loaded = load_model(write_artefact(tmp_path / "x", source, {**source.tensors, "layers.0.up": sparse}))

    assert 2 * int(sparse.mask.sum()) + 192 * 192 // 8 == loaded.tensors["layers.0.up"].stored_bytes


def test_matrices_that_are_not_compressed_keep_their_bytes(tmp_path: Path, source: Checkpoint) -> None:
    embedding = load_model(write_artefact(tmp_path / "x", source, grids_for(source))).tensors["embedding"]

    assert source.tensors["embedding"].rows().tobytes() == embedding.rows().tobytes()
    assert "Q8_0" == embedding.format.name


@pytest.mark.parametrize("shape", [WIDE, TinyShape(rope_factor=8.0, tied=False)], ids=["plain", "Llama 3, own head"])
def test_what_is_said_beside_the_weights_comes_back(tmp_path: Path, shape: TinyShape) -> None:
    defaults = GenerationDefaults(temperature=0.2, top_k=40, top_p=0.9, min_p=0.05)
    source = dataclasses.replace(tiny_source(tmp_path, shape=shape), defaults=defaults)

    loaded = load_model(write_artefact(tmp_path / "x", source, source.tensors))

    assert (source.config, source.vocabulary, source.chat_template, defaults) == (
        loaded.config,
        loaded.vocabulary,
        loaded.chat_template,
        loaded.defaults,
    )


KINDS: dict[str, Callable[[Checkpoint], dict[str, Weights]]] = {
    **{form: partial(grids_for, **fields) for form, fields in FORMS.items()},
    "pruned float16": lambda source: {**source.tensors, "layers.0.up": random_sparse((192, 192))},
    "pruned float32": lambda source: {**source.tensors, "layers.0.up": random_sparse((192, 192), stored=np.float32)},
}


def written_again(folder: Path, loaded: Checkpoint) -> Path:
    """As it was loaded, under another name."""
    return write_artefact(folder, loaded, loaded.tensors)


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_loaded_is_written_again_with_the_same_bytes(tmp_path: Path, source: Checkpoint, kind: str) -> None:
    first = write_artefact(tmp_path / "first", source, KINDS[kind](source))

    again = written_again(tmp_path / "again", load_model(first))

    assert (first / "model.safetensors").read_bytes() == (again / "model.safetensors").read_bytes()
    assert described_tensors(first) == described_tensors(again)


@pytest.mark.parametrize("format", EVERY_FORMAT)
def test_matrices_in_blocks_and_floats_are_written_again_with_the_same_bytes(
    tmp_path: Path, format: FormatName
) -> None:
    source = tiny_source(tmp_path, shape=FOR_EVERY_FORMAT, format=format)
    first = write_artefact(tmp_path / "first", source, source.tensors)

    again = written_again(tmp_path / "again", load_model(first))

    assert (first / "model.safetensors").read_bytes() == (again / "model.safetensors").read_bytes()


@pytest.mark.parametrize("format", UNWRITTEN)
def test_blocks_lie_in_a_folder_as_they_did_in_the_file(tmp_path: Path, format: FormatName) -> None:
    source = tiny_source(tmp_path, shape=FOR_EVERY_FORMAT, format=format)

    found = load_model(write_artefact(tmp_path / "x", source, source.tensors)).tensors["layers.0.up"]

    assert format == found.format.name
    assert source.tensors["layers.0.up"].rows().tobytes() == found.rows().tobytes()


@pytest.mark.parametrize("format", SCALES)
def test_blocks_whose_scale_is_nan_are_refused(tmp_path: Path, format: FormatName) -> None:
    source = tiny_source(tmp_path, shape=FOR_EVERY_FORMAT, format=format)
    up = source.tensors["layers.0.up"]
    rows = up.rows().copy()
    place = SCALES[format][-1]
    rows[0, place : place + 2] = np.array([np.nan], np.float16).view(np.uint8)
    broken = {**source.tensors, "layers.0.up": dataclasses.replace(up, read=lambda: rows)}

    with pytest.raises(ModelFileError, match=r"layers\.0\.up holds a NaN or an infinity"):
        write_artefact(tmp_path / "x", source, broken)


def described_tensors(folder: Path) -> Any:
    return json.loads((folder / "tane.json").read_text())["tensors"]


def test_the_recipe_and_the_name_come_back(tmp_path: Path, source: Checkpoint) -> None:
    loaded = load_model(write_artefact(tmp_path / "x", source, source.tensors))

    assert ("tiny-compressed", RECIPE) == (loaded.name, loaded.recipe)


def test_the_source_is_named_by_its_hash(tmp_path: Path, source: Checkpoint) -> None:
    folder = write_artefact(tmp_path / "x", source, source.tensors)

    assert {"name": "tiny", "sha256": source.sha256} == json.loads((folder / "tane.json").read_text())["source"]


def test_other_programs_read_the_weights_file(tmp_path: Path, source: Checkpoint) -> None:
    folder = write_artefact(tmp_path / "x", source, grids_for(source))

    found = load_file(folder / "model.safetensors")

    assert source.tensors["output_norm"].dequantised().tolist() == found["output_norm"].tolist()


def test_the_same_weights_make_the_same_files(tmp_path: Path, source: Checkpoint) -> None:
    folders = [write_artefact(tmp_path / name, source, grids_for(source)) for name in ("a", "b")]

    assert load_model(folders[0]).sha256 == load_model(folders[1]).sha256


def test_a_smaller_model_than_its_source_is_written(tmp_path: Path, source: Checkpoint) -> None:
    writer = ArtefactWriter(tmp_path / "x", RECIPE, source)
    smaller = dataclasses.replace(source.config, layer_count=1)
    for name, tensor in source.tensors.items():
        if not name.startswith("layers.1."):
            writer.put(name, tensor)

    assert 1 == load_model(writer.finish(smaller, "half")).config.layer_count


def test_a_report_is_kept_in_the_recipe(tmp_path: Path, source: Checkpoint) -> None:
    writer = ArtefactWriter(tmp_path / "x", RECIPE, source)
    for name, tensor in source.tensors.items():
        writer.put(name, tensor)

    recipe = load_model(writer.finish(source.config, "x", report={"perplexity": 20.5})).recipe

    assert {**RECIPE, "report": {"perplexity": 20.5}} == recipe


def test_until_it_is_whole_there_is_no_folder(tmp_path: Path, source: Checkpoint) -> None:
    writer = ArtefactWriter(tmp_path / "x", RECIPE, source)
    writer.put("embedding", source.tensors["embedding"])

    assert not (tmp_path / "x").exists()


def test_when_it_is_whole_nothing_else_is_left(tmp_path: Path, source: Checkpoint) -> None:
    write_artefact(tmp_path / "out" / "x", source, source.tensors)

    assert ["x"] == [path.name for path in (tmp_path / "out").iterdir()]


def test_an_interrupted_run_goes_on_with_what_it_has(tmp_path: Path, source: Checkpoint) -> None:
    grid = random_grid((192, 192), bits=3, group=64)
    ArtefactWriter(tmp_path / "x", RECIPE, source).put("layers.0.gate", grid)

    again = ArtefactWriter(tmp_path / "x", RECIPE, source)

    assert {"layers.0.gate"} == again.done()
    assert grid.dequantised().tobytes() == again.tensor("layers.0.gate").dequantised().tobytes()


def test_an_interrupted_run_ends_as_one_that_was_not(tmp_path: Path, source: Checkpoint) -> None:
    weights = grids_for(source, bits=3)
    whole = write_artefact(tmp_path / "whole", source, weights)
    ArtefactWriter(tmp_path / "x", RECIPE, source).put("layers.0.gate", weights["layers.0.gate"])
    writer = ArtefactWriter(tmp_path / "x", RECIPE, source)
    for name in weights.keys() - writer.done():
        writer.put(name, weights[name])

    folder = writer.finish(source.config, "tiny-compressed")

    assert (whole / "tane.json").read_bytes() == (folder / "tane.json").read_bytes()


def test_a_tensor_that_was_half_written_is_not_done(tmp_path: Path, source: Checkpoint) -> None:
    writer = ArtefactWriter(tmp_path / "x", RECIPE, source)
    (writer.partial / "embedding.working").write_bytes(b"half")

    writer.put("output_norm", source.tensors["output_norm"])

    assert {"output_norm"} == writer.done()


def test_another_recipes_unfinished_work_is_refused(tmp_path: Path, source: Checkpoint) -> None:
    ArtefactWriter(tmp_path / "x", RECIPE, source)

    with pytest.raises(ModelFileError, match="unfinished work of another recipe or model"):
        ArtefactWriter(tmp_path / "x", {**RECIPE, "seed": 1}, source)


def test_more_tensors_than_files_may_be_open_are_put_together(tmp_path: Path, source: Checkpoint) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    writer = ArtefactWriter(tmp_path / "x", RECIPE, source)
    for name, tensor in source.tensors.items():
        writer.put(name, tensor)
    few = len(list(Path("/dev/fd").iterdir())) + 8
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    try:
        folder = writer.finish(source.config, "x")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert source.tensors.keys() == load_model(folder).tensors.keys()


def test_a_folder_that_is_there_is_refused(tmp_path: Path, source: Checkpoint) -> None:
    (tmp_path / "x").mkdir()

    with pytest.raises(ModelFileError, match="is there already"):
        ArtefactWriter(tmp_path / "x", RECIPE, source)


def test_a_tensor_that_was_not_written_is_named(tmp_path: Path, source: Checkpoint) -> None:
    writer = ArtefactWriter(tmp_path / "x", RECIPE, source)
    for name, tensor in source.tensors.items():
        if name != "layers.1.up":
            writer.put(name, tensor)

    with pytest.raises(ModelFileError, match=r"tensor layers\.1\.up was not written"):
        writer.finish(source.config, "x")


def test_a_tensor_of_another_shape_is_named(tmp_path: Path, source: Checkpoint) -> None:
    with pytest.raises(ModelFileError, match=r"tensor layers\.1\.up has shape"):
        write_artefact(tmp_path / "x", source, {**source.tensors, "layers.1.up": random_grid((32, 192))})
