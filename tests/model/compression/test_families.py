"""Models of other families than Llama are calibrated, compressed, kept and exported by their own mathematics."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from model.compression.artefact import load_artefact
from model.compression.artefact_writer import ArtefactWriter
from model.compression.calibration import HiddenStates
from model.compression.compressor import check_fits, compress
from model.compression.gguf_writer import write_gguf
from model.compression.recipe import RecipeError, parse
from model.loading.checkpoint import Checkpoint
from model.loading.gguf import load_gguf
from tests.paged_sequence import PagedSequence, float64_runner
from tests.tiny_families import FAMILY_CONFIGS, write_family_gguf

IDS = np.random.default_rng(5).integers(3, 300, 70).tolist()
"""More than two windows."""
GATED = tuple(family for family in FAMILY_CONFIGS if family != "gpt2")


@pytest.fixture(scope="module", params=GATED)
def source(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return load_gguf(write_family_gguf(tmp_path_factory.mktemp("source") / "m.gguf", request.param))


def logits_of(checkpoint: Checkpoint) -> Tensor:
    return PagedSequence(range(3)).feed_in_pieces(float64_runner(checkpoint, 3), IDS, 1)


def made(source: Checkpoint, name: str, folder: Path) -> Checkpoint:
    recipe = parse(name)
    writer = ArtefactWriter(folder, recipe.described(), source)
    config, report = compress(source, recipe, [IDS], writer, lambda: None)
    return load_artefact(writer.finish(config, "tiny", report))


def test_layer_after_layer_is_the_whole_model(source: Checkpoint) -> None:
    config = source.config
    text = HiddenStates(source.tensors["embedding"], [IDS], config.embedding_scale)
    for index in range(config.layer_count):
        text.advance(config.of_layer(index), source.layer(index))
    gain, table = (torch.tensor(source.tensors[name].dequantised()) for name in ("output_norm", "embedding"))
    hidden = torch.from_numpy(text.states[0])

    logits = torch.nn.functional.rms_norm(hidden, gain.shape, gain, config.norm_epsilon) @ table.T

    torch.testing.assert_close(logits.double(), logits_of(source), atol=2e-4, rtol=2e-4)


@pytest.mark.parametrize(("name", "most"), [("rtn-8bit-g32", 0.03), ("gptq-4bit-g32", 0.4)])
def test_a_compressed_model_is_near_its_source(source: Checkpoint, name: str, most: float, tmp_path: Path) -> None:
    compressed = made(source, name, tmp_path / "out")

    error = (logits_of(compressed) - logits_of(source)).norm() / logits_of(source).norm()

    assert compressed.config == source.config
    assert 1e-4 < float(error) < most


def test_an_exported_model_is_the_source(source: Checkpoint, tmp_path: Path) -> None:
    write_gguf(tmp_path / "out.gguf", source, "F16")

    found = load_gguf(tmp_path / "out.gguf")

    assert found.config == source.config
    torch.testing.assert_close(logits_of(found), logits_of(source), atol=0.05, rtol=0.05)


@pytest.mark.parametrize("family", GATED)
@pytest.mark.parametrize("name", ["ffn-50", "heads-50", "layers-50"])
def test_parts_are_taken_from_plain_llamas_alone(family: str, name: str) -> None:
    with pytest.raises(
        RecipeError, match=rf"implemented for plain Llamas alone, not for {FAMILY_CONFIGS[family].architecture}"
    ):
        check_fits(parse(name), FAMILY_CONFIGS[family])


def test_a_model_without_gates_is_refused_by_name() -> None:
    with pytest.raises(RecipeError, match="models of the family gpt2 cannot be compressed"):
        check_fits(parse("rtn-8bit-g32"), FAMILY_CONFIGS["gpt2"])


def test_a_gpt2_is_not_exported(tmp_path: Path) -> None:
    source = load_gguf(write_family_gguf(tmp_path / "m.gguf", "gpt2"))

    with pytest.raises(ValueError, match="a GPT-2 cannot be exported"):
        write_gguf(tmp_path / "out.gguf", source, "F16")
