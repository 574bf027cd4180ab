"""Raw logits of prompts: those that tokens are drawn from and scored by, whatever happens around."""

import random
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from model.decoding.params import DecodingParameters, LogprobOptions, Score
from model.ops.native_choice import NativeChooser
from service.request import Finished, GenerationRequest, LogitsOf
from tests.bits.conditions import available_isas, neighbours
from tests.bits.laboratory import Laboratory
from tests.bits.questions import greedy, random_prompt
from tests.tiny_model import TinyShape, write_tiny_gguf

SHAPE = TinyShape(context=512)
VOCABULARY = 259
PROMPT = random_prompt(random.Random(5), 150, VOCABULARY)
NOTHING_NEW = DecodingParameters(max_new_tokens=0, seed=0)
SCORED = LogprobOptions(4, prompt=True)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=SHAPE, format="Q8_0")


def asked(laboratory: Laboratory, of: LogitsOf, prompt: tuple[int, ...] = PROMPT) -> GenerationRequest:
    return GenerationRequest(laboratory.new_id(), prompt, NOTHING_NEW, logits=of)


def logits_of(laboratory: Laboratory, of: LogitsOf = "all") -> NDArray[np.float32]:
    (ended,) = laboratory.run([asked(laboratory, of)])
    assert isinstance(ended, Finished)
    return np.concatenate(ended.logits)


@pytest.fixture(scope="module")
def truth(model: Path) -> NDArray[np.float32]:
    """Alone, cold and on one thread."""
    return logits_of(Laboratory(model, threads=1))


def test_each_position_has_a_row_of_the_whole_vocabulary(truth: NDArray[np.float32]) -> None:
    assert (len(PROMPT), SHAPE.vocabulary) == truth.shape
    assert np.float32 == truth.dtype


def test_they_are_what_the_prompt_is_scored_by(model: Path, truth: NDArray[np.float32]) -> None:
    """Bit for bit: scoring these rows gives the log-probabilities of the prompt."""
    finished = Laboratory(model).finish(greedy(PROMPT, 1, logprobs=SCORED))

    scored = NativeChooser().score(truth, [Score(row, token_id, 4) for row, token_id in enumerate(PROMPT[1:])])

    assert [(each.token_id, each.logprob, each.top) for each in finished.prompt] == [
        (each.token_id, each.logprob, each.top) for each in scored
    ]


def test_the_last_row_is_what_the_first_token_is_drawn_from(model: Path, truth: NDArray[np.float32]) -> None:
    (first, *_) = Laboratory(model).finish(greedy(PROMPT, 3, logprobs=SCORED)).completions[0].tokens

    (scored,) = NativeChooser().score(truth[-1:], [Score(0, int(truth[-1].argmax()), 4)])

    assert (first.token_id, first.logprob, first.top) == (scored.token_id, scored.logprob, scored.top)


def test_the_last_position_alone_is_the_last_of_all(model: Path, truth: NDArray[np.float32]) -> None:
    np.testing.assert_array_equal(truth[-1:], logits_of(Laboratory(model), "last"))


@pytest.mark.parametrize("of", ["last", "all"])
@pytest.mark.parametrize("kept", [31, 32, 33, 149, 150])
def test_a_prefix_in_the_cache_changes_no_bit(kept: int, of: LogitsOf, model: Path, truth: NDArray[np.float32]) -> None:
    laboratory = Laboratory(model)
    laboratory.finish(greedy((*PROMPT[:kept], 7, 8), 2, logprobs=LogprobOptions()))

    np.testing.assert_array_equal(truth if of == "all" else truth[-1:], logits_of(laboratory, of))


@pytest.mark.parametrize("rows", [1, 7, 64, 512])
def test_chunks_of_any_length_change_no_bit(rows: int, model: Path, truth: NDArray[np.float32]) -> None:
    np.testing.assert_array_equal(truth, logits_of(Laboratory(model, prompt_rows=rows)))


@pytest.mark.parametrize("isa", available_isas())
def test_every_instruction_set_gives_the_same_bits(isa: str, model: Path, truth: NDArray[np.float32]) -> None:
    np.testing.assert_array_equal(truth, logits_of(Laboratory(model, isa=isa, threads=2)))


def test_neighbours_change_no_bit(model: Path, truth: NDArray[np.float32]) -> None:
    laboratory = Laboratory(model)
    crowd = [each.request(laboratory.new_id()) for each in neighbours(random.Random(3), VOCABULARY, 6)]

    ended = laboratory.run([*crowd[:3], asked(laboratory, "all"), *crowd[3:]])[3]

    assert isinstance(ended, Finished)
    np.testing.assert_array_equal(truth, np.concatenate(ended.logits))


def test_a_prompt_that_was_read_is_in_the_cache(model: Path) -> None:
    laboratory = Laboratory(model)
    logits_of(laboratory)

    assert len(PROMPT) - 1 == laboratory.finish(greedy(PROMPT, 1, logprobs=LogprobOptions())).usage.cached_tokens


def test_nothing_is_generated_and_the_books_balance(model: Path) -> None:
    laboratory = Laboratory(model)

    (ended,) = laboratory.run([asked(laboratory, "all")])

    laboratory.engine.check_books()
    assert isinstance(ended, Finished)
    assert ((), len(PROMPT), 0) == (ended.completions, ended.usage.prompt_tokens, ended.usage.generated_tokens)


def test_a_prompt_that_fills_the_context_is_read_whole(model: Path) -> None:
    laboratory = Laboratory(model)
    prompt = random_prompt(random.Random(1), SHAPE.context, VOCABULARY)

    (ended,) = laboratory.run([asked(laboratory, "last", prompt)])

    assert isinstance(ended, Finished)
    assert [(1, SHAPE.vocabulary)] == [piece.shape for piece in ended.logits]
