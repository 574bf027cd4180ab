"""Text on its way through layers, against the whole model and against sums by hand."""

import numpy as np
import pytest
import torch

from model.compression import calibration
from model.compression.calibration import Hidden, HiddenStates
from model.loading.checkpoint import Checkpoint
from tests.compressed import tiny_source
from tests.reference.forward import forward

WINDOWS = np.random.default_rng(5).integers(3, 300, (3, 24)).tolist()


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return tiny_source(tmp_path_factory.mktemp("source"), format="F32")


def passed(source: Checkpoint, windows: list[list[int]]) -> HiddenStates:
    """Behind all layers."""
    text = HiddenStates(source.tensors["embedding"], windows)
    for index in range(source.config.layer_count):
        text.advance(source.config, source.layer(index))
    return text


def logits(source: Checkpoint, states: Hidden) -> torch.Tensor:
    gain, table = (torch.tensor(source.tensors[name].dequantised()) for name in ("output_norm", "embedding"))
    hidden = torch.from_numpy(states)
    return torch.nn.functional.rms_norm(hidden, gain.shape, gain, source.config.norm_epsilon) @ table.T


def test_layer_after_layer_is_the_whole_model(source: Checkpoint) -> None:
    states = passed(source, WINDOWS).states

    for ids, own in zip(WINDOWS, states, strict=True):
        torch.testing.assert_close(logits(source, own).double(), forward(source, ids), atol=1e-4, rtol=1e-4)


def test_windows_do_not_see_each_other(source: Checkpoint, monkeypatch: pytest.MonkeyPatch) -> None:
    together = passed(source, WINDOWS).states
    monkeypatch.setattr(calibration, "ROWS_AT_ONCE", 1)
    alone = passed(source, WINDOWS).states

    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_the_first_hessian_is_that_of_the_normed_embedding(source: Checkpoint) -> None:
    text = HiddenStates(source.tensors["embedding"], WINDOWS)
    found = text.hessians(source.config, source.layer(0))["query_key_value"]
    gain = torch.tensor(source.tensors["layers.0.attention_norm"].dequantised())
    inputs = torch.nn.functional.rms_norm(
        torch.from_numpy(text.states), gain.shape, gain, source.config.norm_epsilon
    ).reshape(-1, source.config.width)

    np.testing.assert_allclose(found, 2 / 72 * (inputs.T.double() @ inputs.double()).numpy(), rtol=1e-5, atol=1e-7)


def test_each_matrix_reads_inputs_of_its_width(source: Checkpoint) -> None:
    config = source.config
    found = HiddenStates(source.tensors["embedding"], WINDOWS).hessians(config, source.layer(0))
    widths = {
        "query_key_value": config.width,
        "attention_output": config.query_width,
        "upward": config.width,
        "down": config.feed_forward_width,
    }

    assert widths == {name: len(each) for name, each in found.items()}


def test_looking_moves_nothing(source: Checkpoint) -> None:
    text = HiddenStates(source.tensors["embedding"], WINDOWS)
    before = text.states.copy()
    text.hessians(source.config, source.layer(0))

    assert before.tobytes() == text.states.tobytes()


def test_influence_is_how_far_states_turn(source: Checkpoint) -> None:
    text = HiddenStates(source.tensors["embedding"], WINDOWS)
    before = text.states.astype(np.float64)
    influence = text.advance(source.config, source.layer(0))
    after = text.states.astype(np.float64)
    cosines = (before * after).sum(-1) / np.linalg.norm(before, axis=-1) / np.linalg.norm(after, axis=-1)

    assert influence == pytest.approx(1 - cosines.mean(), abs=1e-9)
