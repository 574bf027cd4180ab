"""A row whose numbers overflow fails its own request and changes no bit of any other.

The model is finite, but one token is a bomb: it alone has a number in a channel that the first norm multiplies by 3e38.
"""

import random
from pathlib import Path

import numpy as np
import pytest

from model.decoding.params import DecodingParameters, LogprobOptions
from model.loading.checkpoint import ModelFileError
from service.request import Failed, GenerationRequest, LogitsOf, Terminal
from tests.bits.laboratory import Laboratory, Truth, bits_of
from tests.bits.questions import Question, greedy, questions_of, random_prompt, seeded
from tests.tiny_model import TinyShape, tiny_weights, write_tiny_gguf

SHAPE = TinyShape(context=512)
CHANNEL = 5
BOMB = 77
NEW_TOKENS = 12
SMALLEST_CACHE = 1 << 20
LOGPROBS = LogprobOptions(3)


def write_bomb(path: Path, token_id: int) -> Path:
    """No other token's rows have anything in the channel: nothing is written to it after the embedding."""
    weights = tiny_weights(SHAPE)
    weights["token_embd.weight"][:, CHANNEL] = 0
    weights["token_embd.weight"][token_id, CHANNEL] = 2
    for layer in range(SHAPE.layers):
        weights[f"blk.{layer}.attn_output.weight"][CHANNEL] = 0
        weights[f"blk.{layer}.ffn_down.weight"][CHANNEL] = 0
    weights["blk.0.attn_norm.weight"][CHANNEL] = 3e38
    return write_tiny_gguf(path, shape=SHAPE, format="Q8_0", weights=weights)


@pytest.fixture(scope="module", params=["int8", "float16"])
def laboratory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    model = write_bomb(tmp_path_factory.mktemp("model") / "bomb.gguf", BOMB)
    return Laboratory(model, threads=2, kv_type=request.param, cache_bytes=SMALLEST_CACHE)


@pytest.fixture(scope="module")
def truth(laboratory: Laboratory) -> Truth:
    return Truth(laboratory)


@pytest.fixture(scope="module")
def questions(laboratory: Laboratory) -> list[Question]:
    draw = random.Random(1)
    prompts = [tuple(draw.randrange(80, 300) for _ in range(length)) for length in (1, 33, 64, 100)]
    return questions_of(prompts, NEW_TOKENS)


def run_beside(laboratory: Laboratory, bomb: Question, questions: list[Question]) -> tuple[Terminal, list[Terminal]]:
    """A question in the middle of others: how it ended, and how they did."""
    middle = len(questions) // 2
    asked = [*questions[:middle], bomb, *questions[middle:]]
    ended = laboratory.run([question.request(laboratory.new_id()) for question in asked])
    return ended[middle], [*ended[:middle], *ended[middle + 1 :]]


@pytest.mark.parametrize(
    "prompt", [(BOMB,), (9, BOMB), (*range(90, 130), BOMB, *range(90, 190)), (BOMB, *range(90, 190))]
)
def test_an_overflow_in_a_prompt_fails_that_request_and_no_other(
    prompt: tuple[int, ...], laboratory: Laboratory, truth: Truth, questions: list[Question]
) -> None:
    failed, others = run_beside(laboratory, greedy(prompt, 4, logprobs=LOGPROBS), questions)

    assert isinstance(failed, Failed)
    assert failed.code == "numerical_error"
    assert [truth(question) for question in questions] == [bits_of(each) for each in others]


def test_pages_that_an_overflow_has_filled_with_nan_may_be_used_again(
    laboratory: Laboratory, truth: Truth, questions: list[Question]
) -> None:
    """The bombs together take up every page of the cache."""
    expected = [truth(question) for question in questions]
    draw, length = random.Random(2), SHAPE.context - NEW_TOKENS
    bombs = [greedy((BOMB, *random_prompt(draw, length, 300)), 4, logprobs=LOGPROBS) for _ in range(16)]
    assert len(bombs) * length // 32 > laboratory.page_count

    ended = laboratory.run([bomb.request(laboratory.new_id()) for bomb in bombs])

    assert {isinstance(each, Failed) and each.code for each in ended} == {"numerical_error"}
    assert expected == laboratory.ask_together(questions)


def test_what_came_before_an_overflow_is_computed_anew(laboratory: Laboratory, truth: Truth) -> None:
    prefix = tuple(range(100, 180))
    laboratory.run([greedy((*prefix, BOMB), 4, logprobs=LOGPROBS).request(laboratory.new_id())])
    question = seeded((*prefix, 8), NEW_TOKENS, 3, logprobs=LOGPROBS)

    finished = laboratory.finish(question)

    assert finished.cache.reused_tokens == 0
    assert truth(question) == bits_of(finished)


def test_a_generated_token_that_overflows_fails_its_request_at_the_next_step(tmp_path: Path) -> None:
    """Which token is the bomb changes no other number, so the answer without it says where it will be drawn."""
    question = greedy(tuple(range(100, 140)), NEW_TOKENS, logprobs=LOGPROBS)
    harmless = Laboratory(write_bomb(tmp_path / "harmless.gguf", BOMB))
    (answer,) = harmless.ask(question)
    drawn = answer.tokens[NEW_TOKENS // 2][0]
    place = next(index for index, token in enumerate(answer.tokens) if token[0] == drawn)
    laboratory = Laboratory(write_bomb(tmp_path / "bomb.gguf", drawn))
    others = [seeded(tuple(range(150, 190)), 30, 5, logprobs=LOGPROBS)]
    expected = [laboratory.ask(each, use_cache=False) for each in others]

    failed, survived = run_beside(laboratory, question, others)

    assert isinstance(failed, Failed)
    assert (failed.code, failed.usage.generated_tokens) == ("numerical_error", place + 1)
    assert expected == [bits_of(each) for each in survived]


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_model_that_holds_numbers_that_are_not_finite_is_refused(value: float, tmp_path: Path) -> None:
    weights = tiny_weights(SHAPE)
    weights["token_embd.weight"][BOMB, CHANNEL] = value
    model = write_tiny_gguf(tmp_path / "broken.gguf", shape=SHAPE, weights=weights)

    with pytest.raises(ModelFileError, match=r"token_embd\.weight holds a NaN or an infinity"):
        Laboratory(model)


@pytest.mark.parametrize("of", ["last", "all"])
def test_logits_that_are_no_numbers_fail_their_request(of: LogitsOf, laboratory: Laboratory) -> None:
    nothing_new = DecodingParameters(max_new_tokens=0, seed=0)

    (ended,) = laboratory.run([GenerationRequest("bomb", (9, BOMB, 9), nothing_new, logits=of)])

    assert isinstance(ended, Failed)
    assert "numerical_error" == ended.code
