"""Everything that may happen around a question and must change no bit of its answer.

Each condition asks the questions of a setting in its own way and gives back (question, bits), to be compared with what
an engine answers that computes each question alone and from nothing.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from model.native import _native
from model.ops.native_ops import Isa
from service.request import Delta, Finished
from tests.bits.laboratory import CACHE_BYTES, Laboratory, bits_of
from tests.bits.questions import Answer, Bits, Question, Token, questions_of, random_prompt, tokens_of

NEIGHBOURS = 7
ROOM_TOGETHER = 8
"""Questions that are asked at the same time where it matters little how many."""
CHUNKS = (1, 7, 32, 64, 512)
THREADS = (1, 2, 4)
PAGE_EDGES = (1, *range(30, 35), *range(62, 67), *range(94, 99), 127, 128, 129)
"""Lengths of reused prefixes."""

Answers = Iterator[tuple[Question, Bits]]
Condition = Callable[["Setting"], Answers]


@dataclass(frozen=True, slots=True)
class Setting:
    """A model file, how it is served, and what is asked."""

    model: Path
    questions: tuple[Question, ...]
    settings: dict[str, Any]
    cache_bytes: int = CACHE_BYTES
    scalar_questions: int | None = None
    """How many of the questions the scalar definition is asked, which is slow; None: all."""
    seed: int = 0

    def laboratory(self, **given: Any) -> Laboratory:
        """A new engine."""
        return Laboratory(self.model, cache_bytes=self.cache_bytes, **self.settings | given)

    @property
    def new_tokens(self) -> int:
        return self.questions[0].parameters.max_new_tokens

    def random(self) -> random.Random:
        return random.Random(self.seed)

    def few(self, count: int) -> "Setting":
        """About as many of the questions, of every kind."""
        step = max(1, len(self.questions) // count) | 1
        return replace(self, questions=self.questions[::step])

    @property
    def longest(self) -> Question:
        return max(self.questions, key=lambda question: len(question.prompt_ids))


def available_isas() -> tuple[Isa, ...]:
    isas: tuple[Isa, ...] = ("scalar", "avx2", "avx512")
    return isas[: _native.best_isa() + 1]


def neighbours(draw: random.Random, vocabulary: int, new_tokens: int) -> list[Question]:
    """Other people's questions, greedy and seeded, with short and long prompts."""
    prompts = [random_prompt(draw, draw.choice((1, 5, 20, 33, 70)), vocabulary) for _ in range(NEIGHBOURS)]
    variants = [draw.choice(questions_of([prompt], draw.randint(1, 2 * new_tokens))) for prompt in prompts]
    return [replace(each, parameters=replace(each.parameters, seed=draw.getrandbits(63))) for each in variants]


def among_neighbours(setting: Setting) -> Answers:
    """Seven others in the same batch, some of them admitted before it and some after."""
    laboratory, draw = setting.laboratory(), setting.random()
    for question in setting.questions:
        crowd = neighbours(draw, laboratory.vocabulary_size, setting.new_tokens)
        place = draw.randint(0, NEIGHBOURS)
        yield question, laboratory.ask_together([*crowd[:place], question, *crowd[place:]])[place]


def asked_again(setting: Setting) -> Answers:
    """The cache holds all of the prompt but its last token."""
    laboratory = setting.laboratory()
    for question in setting.questions:
        laboratory.ask(question)
        again = laboratory.finish(question)
        assert again.cache.reused_tokens == len(question.prompt_ids) - 1
        yield question, bits_of(again)


def without_cache(setting: Setting) -> Answers:
    """While the cache holds the prompt."""
    laboratory = setting.laboratory()
    for question in setting.questions:
        laboratory.ask(question)
        yield question, laboratory.ask(question, use_cache=False)


def warm_session(setting: Setting) -> Answers:
    """The next turn of a session, whose prompt is the last one, its answer and something new."""
    laboratory = setting.laboratory()
    for question in setting.questions:
        session = laboratory.new_id()
        (first,) = laboratory.ask(question, session_id=session)
        history = (*question.prompt_ids, *(token[0] for token in first.tokens))
        turn = laboratory.finish(question.after((*history, *question.prompt_ids[:5])), session_id=session)
        assert turn.cache.reason == "append"
        yield question.after((*history, *question.prompt_ids[:5])), bits_of(turn)


def edited_back_and_forth(setting: Setting) -> Answers:
    """A session's prompt is changed in the middle, and changed back."""
    laboratory = setting.laboratory()
    for question in setting.questions:
        session, ids, middle = laboratory.new_id(), question.prompt_ids, len(question.prompt_ids) // 2
        edited = question.after((*ids[:middle], ids[middle] ^ 1, *ids[middle + 1 :]))
        laboratory.ask(question, session_id=session)
        yield edited, laboratory.ask(edited, session_id=session)
        yield question, laboratory.ask(question, session_id=session)


def prefix_of_every_length(setting: Setting) -> Answers:
    """Another prompt, which the cache holds, begins with the same tokens, to about the edges of pages."""
    laboratory, prompt = setting.laboratory(), setting.longest.prompt_ids[:300]
    for question in {each.after(prompt) for each in setting.questions if each.prompt_ids == setting.longest.prompt_ids}:
        for length in (edge for edge in PAGE_EDGES if edge < len(prompt)):
            laboratory.forget()
            laboratory.ask(question.after((*prompt[:length], prompt[length] ^ 1)))
            finished = laboratory.finish(question)
            assert finished.cache.reused_tokens == length
            yield question, bits_of(finished)


def in_chunks(rows: int, setting: Setting) -> Answers:
    """So many prompt rows in a step, while others decode."""
    yield from _in_groups(setting, setting.laboratory(prompt_rows=rows), use_cache=False)


def on_threads(threads: int, setting: Setting) -> Answers:
    yield from _in_groups(setting, setting.laboratory(threads=threads), use_cache=False)


def on_isa(isa: Isa, setting: Setting) -> Answers:
    """The scalar definition is slow: it may be asked less, and computes each prompt once."""
    if isa == "scalar" and setting.scalar_questions is not None:
        setting = setting.few(setting.scalar_questions)
    yield from _in_groups(setting, setting.laboratory(isa=isa))


def after_restart(setting: Setting) -> Answers:
    """Alone, on an engine that was never asked before."""
    laboratory = setting.laboratory()
    for question in setting.questions:
        yield question, laboratory.ask(question)


def streamed(setting: Setting) -> Answers:
    """What arrived in pieces, joined."""
    laboratory = setting.laboratory()
    for question in setting.questions:
        laboratory.engine.submit(question.request(laboratory.new_id(), streams=True), 0.0)
        *deltas, finished = laboratory.until_idle()
        assert isinstance(finished, Finished)
        yield (
            question,
            tuple(
                joined([each for each in deltas if isinstance(each, Delta) and each.index == index], whole)
                for index, whole in enumerate(bits_of(finished))
            ),
        )


def joined(deltas: list[Delta], whole: Answer) -> Answer:
    tokens: list[Token] = [token for delta in deltas for token in tokens_of(delta.tokens)]
    return Answer(tuple(tokens), "".join(delta.text for delta in deltas), whole.finish_reason, whole.beam)


def between_free_pages_of_nan(setting: Setting) -> Answers:
    """Every page was used before and holds NaN since; all questions at once take up most of them."""
    laboratory = setting.laboratory()
    laboratory.ask_together(setting.questions)
    laboratory.forget()
    yield from zip(setting.questions, laboratory.ask_together(setting.questions), strict=True)


def several_samples(setting: Setting) -> Answers:
    """Three samples among neighbours; the first is also the answer to a request for one."""
    laboratory, draw = setting.laboratory(), setting.random()
    for question in (each for each in setting.questions if each.parameters.temperature > 0):
        crowd = neighbours(draw, laboratory.vocabulary_size, setting.new_tokens)
        three = replace(question, sample_count=3)
        bits = laboratory.ask_together([*crowd[:3], three, *crowd[3:]])[3]
        yield three, bits
        yield question, bits[:1]


def _in_groups(setting: Setting, laboratory: Laboratory, **given: Any) -> Answers:
    for first in range(0, len(setting.questions), ROOM_TOGETHER):
        group = setting.questions[first : first + ROOM_TOGETHER]
        yield from zip(group, laboratory.ask_together(group, **given), strict=True)


CONDITIONS: dict[str, Condition] = {
    "among 7 neighbours": among_neighbours,
    "asked again": asked_again,
    "without the cache": without_cache,
    "on a warm session": warm_session,
    "after an edit back and forth": edited_back_and_forth,
    "after a prefix of every length": prefix_of_every_length,
    "after a restart": after_restart,
    "streamed": streamed,
    "between free pages of NaN": between_free_pages_of_nan,
    "several samples": several_samples,
    **{f"in chunks of {rows}": partial(in_chunks, rows) for rows in CHUNKS},
    **{f"on threads: {threads}": partial(on_threads, threads) for threads in THREADS},
    **{f"on {isa}": partial(on_isa, isa) for isa in available_isas()},
}
