"""What is asked, and an answer down to its last bit.

Knows requests and prompts; knows no engine. Always: the same arguments make the same questions.
"""

import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from model.decoding.params import DecodingParameters, LogprobOptions, Penalties
from service.request import Completion, GenerationRequest, TokenRecord

TEMPERATURE = 0.8
TOP = 3
LENGTHS = (1, 31, 32, 33, 64, 65, 300, 1000, 2, 7, 16, 48, 63, 96, 97, 128, 129, 200)
"""Of prompts: about the edges of pages and of attention's blocks, and between them."""

SENTENCES = (
    "The seed lies in the ground and waits for the rain.",
    "When the rain has come, the seed opens, and the first leaf finds the light.",
    "Whoever plants the same seed in the same ground will see the same flower.",
    "The answer should depend on the question and on nothing else.",
    "Not on the hour, not on the weather, not on the other gardens.",
    "There were 12 rows and 34 beds, and 56 of them were empty.",
    "What do you call the number of ways to plant seven seeds in three beds?",
    "In the morning the gardener counts the leaves; in the evening she writes them down.",
    "A book of such numbers is worth more than a good memory.",
    "Once upon a time a machine learned to write, and nobody could say why.",
)

Token = tuple[int, str, tuple[tuple[int, str], ...]]
"""Id, log-probability and the likeliest ids with theirs; floats as hexadecimal, so that equal means every bit."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One sample of an answer."""

    tokens: tuple[Token, ...]
    text: str
    finish_reason: str
    beam: tuple[str, str] | None = None
    """Of a beam: its log-probability and its score."""


Bits = tuple[Answer, ...]


@dataclass(frozen=True, slots=True)
class Question:
    """A request without what must not matter: its name, its session, its neighbours."""

    prompt_ids: tuple[int, ...]
    parameters: DecodingParameters
    sample_count: int = 1

    def request(
        self, request_id: str, *, session_id: str | None = None, use_cache: bool = True, streams: bool = False
    ) -> GenerationRequest:
        return GenerationRequest(
            request_id,
            self.prompt_ids,
            self.parameters,
            self.sample_count,
            session_id=session_id,
            use_cache=use_cache,
            streams=streams,
        )

    def after(self, prompt_ids: Iterable[int]) -> "Question":
        """The same question of another prompt."""
        return replace(self, prompt_ids=tuple(prompt_ids))


def greedy(prompt_ids: Sequence[int], new_tokens: int, *, logprobs: LogprobOptions) -> Question:
    parameters = DecodingParameters(new_tokens, seed=0, temperature=0.0, ignore_eos=True, logprobs=logprobs)
    return Question(tuple(prompt_ids), parameters)


def seeded(prompt_ids: Sequence[int], new_tokens: int, seed: int, *, logprobs: LogprobOptions) -> Question:
    """Of the whole distribution, or, where log-probabilities are of what was drawn from, of a part of it."""
    narrow: dict[str, Any] = {"top_k": 40, "top_p": 0.95, "min_p": 0.001} if logprobs.of == "sampled" else {}
    parameters = DecodingParameters(
        new_tokens, seed, temperature=TEMPERATURE, ignore_eos=True, logprobs=logprobs, **narrow
    )
    return Question(tuple(prompt_ids), parameters)


def searched(prompt_ids: Sequence[int], new_tokens: int, width: int, **given: Any) -> Question:
    """The best that a beam search of this width finds. `given` are decoding parameters."""
    given = {"logprobs": LogprobOptions(TOP), "ignore_eos": True, **given}
    return Question(tuple(prompt_ids), DecodingParameters(new_tokens, seed=0, beam_width=width, **given))


def searches_of(prompts: Sequence[tuple[int, ...]], new_tokens: int) -> list[Question]:
    """Each prompt with another width, plain and with what changes the logits of each beam for itself."""
    penalties = Penalties(1.3, "all", 0.4, 0.2)
    return [
        question
        for index, prompt in enumerate(prompts)
        for question in (
            searched(prompt, new_tokens, 2 + index % 7, length_penalty=(0.0, 1.0, -0.5)[index % 3]),
            searched(prompt, new_tokens, 2 + index % 3, penalties=penalties, banned_token_ids=(5, 9), stop=("e", "in")),
        )
    ]


def questions_of(prompts: Sequence[tuple[int, ...]], new_tokens: int) -> list[Question]:
    """Each prompt greedily and with a seed, with log-probabilities of the model and of what was drawn from."""
    model, sampled = LogprobOptions(TOP, "model"), LogprobOptions(TOP, "sampled")
    return [
        question
        for seed, prompt in enumerate(prompts, start=1)
        for logprobs in (model, sampled)
        for question in (
            greedy(prompt, new_tokens, logprobs=logprobs),
            seeded(prompt, new_tokens, seed, logprobs=logprobs),
        )
    ]


def half_of(questions: Sequence[Question]) -> list[Question]:
    """Of the four questions about each prompt two: one greedy and one seeded, of all kinds in turn."""
    return [each for index, each in enumerate(questions) if index % 8 in (0, 3, 5, 6)]


def random_prompt(draw: random.Random, length: int, vocabulary: int) -> tuple[int, ...]:
    """Ids of any tokens but the first few, which are control tokens."""
    return tuple(draw.randrange(3, vocabulary) for _ in range(length))


def prose(draw: random.Random, length: int, encode: Callable[[str], list[int]]) -> tuple[int, ...]:
    """The first tokens of sentences in any order."""
    ids: list[int] = []
    while len(ids) < length:
        ids += encode(" ".join(draw.sample(SENTENCES, len(SENTENCES))) + "\n\n")
    return tuple(ids[:length])


def answer_of(completion: Completion) -> Answer:
    beam = None
    if completion.logprob is not None and completion.score is not None:
        beam = completion.logprob.hex(), completion.score.hex()
    return Answer(tuple(tokens_of(completion.tokens)), completion.text, completion.finish_reason, beam)


def tokens_of(records: Iterable[TokenRecord]) -> Iterator[Token]:
    for record in records:
        assert record.logprob is not None
        top = tuple((each.token_id, each.logprob.hex()) for each in record.top)
        yield record.token_id, record.logprob.hex(), top
