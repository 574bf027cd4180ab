"""Predictors are the models that would be served, and the simulation rounds as the native op set does."""

import pytest
import torch

from model.batch import Batch, Segment
from model.compression.stored import Weights
from model.evaluation.corpus import Window
from model.evaluation.perplexity import Scored, score_windows
from model.evaluation.predictors import native_predictor, simulated_predictor, torch_predictor
from model.kv_cache import pages_for
from model.loading.checkpoint import Checkpoint
from model.loading.model import load_model
from model.ops.native_ops import NativeOps
from model.ops.torch_simulated import rounded
from model.runner import ModelRunner
from tests.compressed import grids_for, random_sparse, write_artefact

WIDTH = 96
PROMPT = tuple(range(3, 20))


def step_by_step(checkpoint: Checkpoint, prompt: tuple[int, ...], count: int) -> list[int]:
    """Greedy text, each token from a run of everything before it."""
    runner = ModelRunner(NativeOps(checkpoint.config, 3), checkpoint)
    ids = list(prompt)
    for _ in range(count):
        batch = Batch((Segment(tuple(ids), 0, tuple(range(pages_for(len(ids)))), asks=1),))
        ids.append(int(runner.forward(batch).numpy()[0].argmax()))
    return ids[len(prompt) :]


def test_greedy_text_is_that_of_runs_from_the_start(source: Checkpoint) -> None:
    assert step_by_step(source, PROMPT, 40) == list(native_predictor(source, WIDTH).greedy(PROMPT, 40))


def test_greedy_text_ends_with_the_token_that_ends_a_text(source: Checkpoint) -> None:
    whole = native_predictor(source, WIDTH).greedy(PROMPT, 8)

    assert whole[: whole.index(whole[4]) + 1] == native_predictor(source, WIDTH).greedy(PROMPT, 8, {whole[4]})


def test_torch_writes_what_its_own_predictions_say(source: Checkpoint) -> None:
    predictor = torch_predictor(source, WIDTH)
    written = predictor.greedy(PROMPT, 12)

    assert list(written) == predictor.logits((*PROMPT, *written))[len(PROMPT) - 1 : -1].argmax(axis=1).tolist()


def test_the_time_of_a_token_is_a_share_of_that_of_all(source: Checkpoint) -> None:
    times = iter([10.0, 14.0])

    assert 0.5 == native_predictor(source, WIDTH).seconds_per_token(PROMPT, 8, clock=lambda: next(times))


def test_the_threads_of_torch_are_set_where_they_are_named(source: Checkpoint) -> None:
    before = torch.get_num_threads()
    try:
        torch_predictor(source, WIDTH, threads=1)

        assert 1 == torch.get_num_threads()
    finally:
        torch.set_num_threads(before)


def test_a_group_is_rounded_to_multiples_of_its_greatest_over_127_half_to_even() -> None:
    x = torch.tensor([[127.0, 0.5, 1.5, -2.5], [0.0, 0.0, 0.0, 2.0**-101]])

    assert [[127.0, 0.0, 2.0, -2.0], [0.0, 0.0, 0.0, 0.0]] == rounded(x, 4).tolist()


def test_a_group_that_is_not_finite_is_nan_and_its_neighbours_are_not() -> None:
    found = rounded(torch.tensor([[1.0, float("inf"), 1.0, 2.0]]), 2)

    assert [True, True, False, False] == found.isnan()[0].tolist()


@pytest.fixture(scope="module", params=["4 bits", "3 bits", "pruned floats"])
def compressed(
    request: pytest.FixtureRequest, source: Checkpoint, tmp_path_factory: pytest.TempPathFactory
) -> Checkpoint:
    folder = tmp_path_factory.mktemp("compressed") / "artefact"
    if request.param == "pruned floats":
        weights: dict[str, Weights] = {
            name: random_sparse((tensor.shape[0], tensor.shape[1]), seed=seed)
            if name.startswith("layers.") and len(tensor.shape) > 1
            else tensor
            for seed, (name, tensor) in enumerate(source.tensors.items())
        }
    else:
        weights = grids_for(source, bits=int(request.param[0]), group=32)
    return load_model(write_artefact(folder, source, weights))


def scored_against_native(compressed: Checkpoint, windows: list[Window]) -> tuple[Scored, Scored]:
    """The simulation and torch in float32, each beside the native op set."""
    candidates = [simulated_predictor(compressed, WIDTH), torch_predictor(compressed, WIDTH)]
    simulated, float32 = score_windows(candidates, windows, native_predictor(compressed, WIDTH))
    return simulated, float32


def test_the_simulation_is_far_closer_to_the_native_op_set_than_float32_is(
    compressed: Checkpoint, windows: list[Window]
) -> None:
    simulated, float32 = scored_against_native(compressed, windows)

    assert simulated.figures()["mean_divergence"] < float32.figures()["mean_divergence"] / 4


def test_where_attention_has_nothing_to_weigh_the_simulation_is_the_native_op_set(compressed: Checkpoint) -> None:
    """At the first position no rounding to 16 bits is left out, so only the order of float sums differs."""
    native = native_predictor(compressed, WIDTH).logits(PROMPT)[0]
    simulated, float32 = (make(compressed, WIDTH).logits(PROMPT)[0] for make in (simulated_predictor, torch_predictor))

    assert abs(simulated - native).max() < 2e-4 * abs(native).max()
    assert abs(float32 - native).max() > 10 * abs(simulated - native).max()


def test_native_perplexity_is_within_a_thousandth_of_the_simulation(
    compressed: Checkpoint,
) -> None:
    """On text that the model itself writes, so that its predictions are those of a model that knows its text."""
    native = native_predictor(compressed, WIDTH)
    prompts = [(3, 14, 15), (92, 65, 35), (89, 79, 32)]
    windows = [("written", (*prompt, *native.greedy(prompt, 60))) for prompt in prompts]
    simulated, _ = scored_against_native(compressed, windows)

    assert abs(simulated.figures()["relative_perplexity_percent"]) < 0.1
