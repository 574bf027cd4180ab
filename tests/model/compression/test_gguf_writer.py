"""GGUF files that are written hold what they were made of, and other programs read the same weights in them."""

import dataclasses
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, get_args

import gguf
import numpy as np
import pytest

from model.batch import Batch, Segment
from model.compression.artefact_writer import ArtefactWriter
from model.compression.gguf_blocks import BlockName, rounded_rows
from model.compression.gguf_writer import write_gguf
from model.compression.stored import Weights
from model.loading.checkpoint import Checkpoint, GenerationDefaults
from model.loading.gguf import load_gguf
from model.loading.model import load_model
from model.loading.names import gguf_name
from model.ops.native_ops import NativeOps
from model.runner import ModelRunner
from tests.compressed import RECIPE, WIDE, grids_for, random_grid, random_sparse, tiny_source, write_artefact
from tests.tiny_model import EVERY_FORMAT, FOR_EVERY_FORMAT, FORMAT_NAMES, FormatName, TinyShape, permute_for_gguf

BLOCKS: tuple[BlockName, ...] = get_args(BlockName)
LINEAR = ("query", "key", "value", "attention_output", "gate", "up", "down")


def weights(checkpoint: Checkpoint) -> dict[str, bytes]:
    return {name: tensor.dequantised().tobytes() for name, tensor in checkpoint.tensors.items()}


@pytest.mark.parametrize("format", BLOCKS)
def test_a_model_written_in_its_own_format_keeps_every_byte(tmp_path: Path, format: BlockName) -> None:
    source = tiny_source(tmp_path, format=format)

    write_gguf(tmp_path / "x.gguf", source, format)

    found = load_gguf(tmp_path / "x.gguf")
    assert {name: tensor.rows().tobytes() for name, tensor in source.tensors.items()} == {
        name: tensor.rows().tobytes() for name, tensor in found.tensors.items()
    }


@pytest.mark.parametrize("format", BLOCKS)
def test_linear_layers_are_in_the_format_asked_for(tmp_path: Path, format: BlockName) -> None:
    write_gguf(tmp_path / "x.gguf", tiny_source(tmp_path, format="F32"), format)

    found = load_gguf(tmp_path / "x.gguf").tensors
    assert {format} == {tensor.format.name for name, tensor in found.items() if name.rpartition(".")[2] in LINEAR}


@pytest.mark.parametrize("format", BLOCKS)
def test_another_program_reads_the_same_weights(tmp_path: Path, format: BlockName) -> None:
    write_gguf(tmp_path / "x.gguf", tiny_source(tmp_path, format="F32"), format)
    found = load_gguf(tmp_path / "x.gguf")

    theirs = {each.name: each for each in gguf.GGUFReader(tmp_path / "x.gguf").tensors}

    assert {gguf_name(name) for name in found.tensors} == theirs.keys()
    for name in ("layers.1.value", "layers.0.down", "embedding", "output_norm"):
        read = theirs[gguf_name(name)]
        values = gguf.quants.dequantize(read.data, read.tensor_type).reshape(found.tensors[name].shape)
        assert found.tensors[name].dequantised().tolist() == values.tolist(), name


@pytest.mark.parametrize("format", BLOCKS)
@pytest.mark.parametrize("stored", FORMAT_NAMES)
def test_what_is_read_again_is_near_what_was_written(tmp_path: Path, stored: FormatName, format: BlockName) -> None:
    source = tiny_source(tmp_path, format=stored)

    write_gguf(tmp_path / "x.gguf", source, format)

    found = load_gguf(tmp_path / "x.gguf").tensors
    bound = {"F16": 1e-3, "Q8_0": 0.01, "Q4_1": 0.1, "Q4_0": 0.12}[format]
    for name, tensor in source.tensors.items():
        written, read = tensor.dequantised(), found[name].dequantised()
        assert np.linalg.norm(read - written) <= bound * np.linalg.norm(written), name


@pytest.mark.parametrize("shape", [WIDE, TinyShape(rope_factor=8.0, tied=False)], ids=["plain", "Llama 3, own head"])
def test_what_is_said_beside_the_weights_comes_back(tmp_path: Path, shape: TinyShape) -> None:
    defaults = GenerationDefaults(temperature=0.2, top_k=40, top_p=0.9, min_p=0.05)
    source = dataclasses.replace(tiny_source(tmp_path, shape=shape), defaults=defaults)

    write_gguf(tmp_path / "x.gguf", source, "Q4_0")

    found = load_gguf(tmp_path / "x.gguf")
    names = ("name", "config", "vocabulary", "chat_template", "defaults")
    assert [getattr(source, name) for name in names] == [getattr(found, name) for name in names]


EXACT: dict[str, tuple[dict[str, Any], BlockName]] = {
    "4 bits as Q4_1": ({"bits": 4}, "Q4_1"),
    "3 bits in groups of 64 as Q4_1": ({"bits": 3, "group": 64}, "Q4_1"),
    "symmetric 4 bits as Q4_0": ({"bits": 4, "zero": 8}, "Q4_0"),
    "symmetric 3 bits as Q4_0": ({"bits": 3, "zero": 4}, "Q4_0"),
    "symmetric 8 bits as Q8_0": ({"bits": 8, "zero": 128}, "Q8_0"),
    "symmetric 4 bits as Q8_0": ({"bits": 4, "zero": 8}, "Q8_0"),
    "half pruned and symmetric as Q4_0": ({"bits": 4, "zero": 8, "pruned": 0.5}, "Q4_0"),
}


@pytest.mark.parametrize("case", EXACT)
def test_a_grid_that_the_format_holds_keeps_every_weight(tmp_path: Path, case: str) -> None:
    form, format = EXACT[case]
    source = tiny_source(tmp_path)
    compressed = load_model(write_artefact(tmp_path / "x", source, grids_for(source, **form)))

    outcome = write_gguf(tmp_path / "x.gguf", compressed, format)

    assert {} == outcome.rounded
    assert _values(compressed) == _values(load_gguf(tmp_path / "x.gguf"))


def _values(checkpoint: Checkpoint) -> dict[str, list[Any]]:
    """Without the sign of zero, which block formats do not keep."""
    return {name: (tensor.dequantised() + 0).tolist() for name, tensor in checkpoint.tensors.items()}


def test_the_native_engine_computes_the_same_bits_from_the_folder_and_from_the_file(tmp_path: Path) -> None:
    source = tiny_source(tmp_path)
    compressed = load_model(write_artefact(tmp_path / "x", source, grids_for(source, bits=4, group=64)))
    write_gguf(tmp_path / "x.gguf", compressed, "Q4_1")
    batch = Batch((Segment(tuple(range(10, 40)), 0, (0,), asks=1),), ())

    first, second = (
        ModelRunner(NativeOps(each.config, 1), each).forward(batch).numpy()
        for each in (compressed, load_gguf(tmp_path / "x.gguf"))
    )

    assert first.tobytes() == second.tobytes()


def test_matrices_that_were_rounded_are_named(tmp_path: Path) -> None:
    source = tiny_source(tmp_path)
    weights = {**source.tensors, "layers.1.down": grids_for(source, bits=5)["layers.1.down"]}
    compressed = load_model(write_artefact(tmp_path / "x", source, weights))

    assert ["layers.1.down"] == list(write_gguf(tmp_path / "x.gguf", compressed, "Q8_0").rounded)


def test_groups_of_16_are_rounded(tmp_path: Path) -> None:
    source = tiny_source(tmp_path)
    compressed = load_model(write_artefact(tmp_path / "x", source, grids_for(source, group=16)))

    assert "layers.0.up" in write_gguf(tmp_path / "x.gguf", compressed, "Q4_1").rounded


def test_a_file_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    source = tiny_source(tmp_path)

    with pytest.raises(FileExistsError):
        write_gguf(tmp_path / "source.gguf", source, "Q8_0")


def test_a_file_that_is_there_is_overwritten_when_that_is_asked_for(tmp_path: Path) -> None:
    source = tiny_source(tmp_path)
    (tmp_path / "x.gguf").write_bytes(b"other")

    write_gguf(tmp_path / "x.gguf", source, "Q8_0", overwrite=True)

    assert weights(source) == weights(load_gguf(tmp_path / "x.gguf"))


def test_a_model_may_be_written_over_its_own_source(tmp_path: Path) -> None:
    source = tiny_source(tmp_path)
    expected = weights(source)

    write_gguf(tmp_path / "source.gguf", source, "Q8_0", overwrite=True)

    assert expected == weights(load_gguf(tmp_path / "source.gguf"))


def test_a_file_that_came_into_being_meanwhile_is_kept(tmp_path: Path) -> None:
    source = tiny_source(tmp_path)
    path = tmp_path / "x.gguf"

    def another_writes() -> None:
        path.write_bytes(b"another")

    with pytest.raises(FileExistsError):
        write_gguf(path, source, "Q8_0", on_tensor=another_writes)

    assert b"another" == path.read_bytes()


@contextmanager
def disk_of(size: int) -> Iterator[None]:
    """Files cannot grow beyond so many bytes."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("room", [100, 30_000])
def test_nothing_is_left_where_there_is_no_room(tmp_path: Path, room: int) -> None:
    source = tiny_source(tmp_path)

    with disk_of(room), pytest.raises(OSError, match="File too large"):
        write_gguf(tmp_path / "x.gguf", source, "Q8_0")

    assert ["source.gguf"] == [path.name for path in tmp_path.iterdir()]


def test_what_was_there_stays_where_there_is_no_room_for_its_successor(tmp_path: Path) -> None:
    source = tiny_source(tmp_path)
    before = (tmp_path / "source.gguf").read_bytes()

    with disk_of(30_000), pytest.raises(OSError, match="File too large"):
        write_gguf(tmp_path / "source.gguf", source, "Q8_0", overwrite=True)

    assert {"source.gguf": before} == {path.name: path.read_bytes() for path in tmp_path.iterdir()}


def test_each_tensor_is_told_when_it_is_done(tmp_path: Path) -> None:
    source = tiny_source(tmp_path)
    done: list[None] = []

    write_gguf(tmp_path / "x.gguf", source, "Q8_0", on_tensor=lambda: done.append(None))

    assert len(source.tensors) == len(done)


@pytest.mark.parametrize("format", EVERY_FORMAT)
def test_blocks_are_copied_as_they_are(tmp_path: Path, format: FormatName) -> None:
    source = tiny_source(tmp_path, shape=FOR_EVERY_FORMAT, format=format)

    outcome = write_gguf(tmp_path / "x.gguf", source, "auto")

    found = load_gguf(tmp_path / "x.gguf").tensors
    assert {} == outcome.rounded
    assert all(tensor.rows().tobytes() == found[name].rows().tobytes() for name, tensor in source.tensors.items())


@pytest.mark.parametrize("format", EVERY_FORMAT)
def test_a_file_is_said_to_be_of_the_type_that_llama_cpp_calls_mostly_this_format(
    tmp_path: Path, format: FormatName
) -> None:
    write_gguf(tmp_path / "x.gguf", tiny_source(tmp_path, shape=FOR_EVERY_FORMAT, format=format), "auto")

    said = gguf.GGUFReader(tmp_path / "x.gguf").fields["general.file_type"].contents()

    expected = {"F32": "ALL_F32"}.get(format, f"MOSTLY_{format}{'_S' if format in ('Q3_K', 'Q4_K', 'Q5_K') else ''}")
    assert expected == gguf.LlamaFileType(said).name


@pytest.mark.parametrize("format", ["Q5_0", "IQ4_NL", "Q3_K"])
def test_centred_blocks_become_q8_0_exactly(tmp_path: Path, format: FormatName) -> None:
    source = tiny_source(tmp_path, shape=FOR_EVERY_FORMAT, format=format)

    outcome = write_gguf(tmp_path / "x.gguf", source, "Q8_0")

    found = load_gguf(tmp_path / "x.gguf").tensors["layers.0.up"]
    assert {} == outcome.rounded
    assert np.array_equal(source.tensors["layers.0.up"].dequantised(), found.dequantised())


def mixed(source: Checkpoint) -> dict[str, Weights]:
    """A layer of three grids, and pruned floats."""
    return {
        **source.tensors,
        "layers.0.gate": random_grid((192, 192), bits=4, group=64),
        "layers.0.up": random_grid((192, 192), bits=4, zero=8),
        "layers.0.down": random_grid((192, 192), bits=8, zero=128),
        "layers.0.query": random_grid((192, 192), bits=8, zero=100),
        "layers.1.up": random_sparse((192, 192)),
        "layers.1.down": random_sparse((192, 192), stored=np.float32),
    }


def test_each_matrix_may_have_a_format_of_its_own(tmp_path: Path) -> None:
    source = tiny_source(tmp_path)
    compressed = load_model(write_artefact(tmp_path / "x", source, mixed(source)))

    outcome = write_gguf(tmp_path / "x.gguf", compressed, "auto")

    names = ("layers.0.gate", "layers.0.up", "layers.0.down", "layers.0.query", "layers.1.up", "layers.1.down")
    assert ["Q4_1", "Q4_0", "Q8_0", "F16", "F16", "F32"] == [outcome.formats[name].name for name in names]
    assert ["layers.0.query"] == list(outcome.rounded)


def test_another_program_reads_every_weight_of_what_was_not_rounded(tmp_path: Path) -> None:
    source = tiny_source(tmp_path)
    compressed = load_model(write_artefact(tmp_path / "x", source, mixed(source)))

    write_gguf(tmp_path / "x.gguf", compressed, "auto")

    theirs = {each.name: each for each in gguf.GGUFReader(tmp_path / "x.gguf").tensors}
    for name, tensor in compressed.tensors.items():
        read = theirs[gguf_name(name)]
        values = gguf.quants.dequantize(read.data, read.tensor_type).reshape(tensor.shape)
        if name == "layers.0.query":
            continue
        expected = tensor.dequantised()
        if name.endswith(("query", "key")):
            heads = source.config.head_count if name.endswith("query") else source.config.kv_head_count
            expected = permute_for_gguf(expected, heads)
        assert expected.tolist() == values.tolist(), name


def test_a_model_with_less_of_everything_comes_back(tmp_path: Path) -> None:
    """Fewer layers, neurons and heads than its source: every shape is its own."""
    (tmp_path / "small").mkdir()
    shape = TinyShape(layers=1, width=192, heads=2, kv_heads=1, feed_forward=64)
    small, source = tiny_source(tmp_path / "small", shape=shape), tiny_source(tmp_path)
    writer = ArtefactWriter(tmp_path / "x", RECIPE, source)
    for name, tensor in small.tensors.items():
        writer.put(name, tensor)
    compressed = load_model(writer.finish(small.config, "small"))

    write_gguf(tmp_path / "x.gguf", compressed, "auto")

    found = load_gguf(tmp_path / "x.gguf")
    assert (small.config, weights(small)) == (found.config, weights(found))


@pytest.mark.parametrize("format", BLOCKS)
def test_the_file_says_what_most_of_it_is(tmp_path: Path, format: BlockName) -> None:
    write_gguf(tmp_path / "x.gguf", tiny_source(tmp_path), format)

    field = gguf.GGUFReader(tmp_path / "x.gguf").get_field("general.file_type")

    assert field is not None
    assert gguf.LlamaFileType[f"MOSTLY_{format}"] == field.contents()


def test_another_program_finds_the_keys_of_the_source(tmp_path: Path) -> None:
    """All but ids of tokens that no text is made of."""
    source = tiny_source(tmp_path)

    write_gguf(tmp_path / "x.gguf", source, "Q8_0")

    ours, theirs = (
        {name: (field.types, field.contents()) for name, field in gguf.GGUFReader(path).fields.items()}
        for path in (tmp_path / "x.gguf", tmp_path / "source.gguf")
    )
    unlike = {name for name in theirs if ours.get(name) != theirs[name]}
    assert {"tokenizer.ggml.unknown_token_id", "tokenizer.ggml.padding_token_id"} == unlike


def test_nothing_is_left_of_a_file_that_could_not_be_written(tmp_path: Path) -> None:
    source = tiny_source(tmp_path, shape=TinyShape(feed_forward=100), format="F32")

    with pytest.raises(ValueError, match=r"layers\.0\.down has rows of 100, which Q4_1 does not divide"):
        write_gguf(tmp_path / "x.gguf", source, "Q4_1")

    assert ["source.gguf"] == [path.name for path in tmp_path.iterdir()]


@pytest.mark.parametrize("format", BLOCKS)
def test_numbers_that_float16_does_not_hold_are_refused(format: BlockName) -> None:
    with pytest.raises(ValueError, match="too great for float16"):
        rounded_rows(np.linspace(0, 1e9, 32, dtype=np.float32)[None], format)


@pytest.mark.parametrize("format", ["Q4_0", "Q4_1", "Q8_0"])
def test_codes_are_the_nearest_for_the_scales_as_stored(format: BlockName) -> None:
    rows = np.random.default_rng(0).standard_normal((64, 96)).astype(np.float32)
    kind = gguf.GGMLQuantizationType[format]

    found = gguf.quants.dequantize(rounded_rows(rows, format), kind)

    theirs = gguf.quants.dequantize(gguf.quants.quantize(rows, kind), kind)
    assert np.linalg.norm(found - rows) <= 1.001 * np.linalg.norm(theirs - rows)


@pytest.mark.slow
def test_the_default_model_written_as_q4_1_has_its_tensors_bytes(tmp_path: Path, default_model_path: Path) -> None:
    outcome = write_gguf(tmp_path / "x.gguf", load_gguf(default_model_path), "Q4_1")

    ours, theirs = (gguf.GGUFReader(path).tensors for path in (tmp_path / "x.gguf", default_model_path))
    assert {} == outcome.rounded
    assert {each.name: (each.tensor_type, each.data.tobytes()) for each in theirs} == {
        each.name: (each.tensor_type, each.data.tobytes()) for each in ours
    }
