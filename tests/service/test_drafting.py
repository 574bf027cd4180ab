"""When tokens are guessed ahead, by whom and how many; answers stay what they are."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from model.batch import Batch
from model.decoding.choice import Ask, Choice
from model.decoding.params import Drawn, Speculation
from service.draft_model import DraftModel
from service.drafting import FEW_TEXTS, MOST_TEXTS, TRIAL_S, Drafting
from service.engine import Engine, EngineLimits
from service.request import Finished, GenerationRequest
from tests.engine_fakes import (
    EOS,
    Context,
    HandClock,
    PagedModel,
    ScriptedSampler,
    expected_ids,
    ids_of,
    make_request,
    make_transcript,
    next_id,
    run,
    run_until_idle,
)

PAGES = 256
PERIOD = 12
Says = Callable[[Context, int, int], int]


def repeating(context: Context, seed: int, sample_index: int) -> int:
    """Says what stood twelve places before; the seed and the sample shift where it begins."""
    return context[-PERIOD] if len(context) >= PERIOD else len(context) + 2


def free(context: Context, seed: int, sample_index: int) -> int:
    return next_id(context, seed, sample_index)


class SpeakingSampler(ScriptedSampler):
    """Draws what its script says, and accepts what was drafted where it is that."""

    def __init__(self, says: Says) -> None:
        self._says = says
        self.asked: list[Ask] = []
        self.read: list[int] = []
        """Before each of them, how many tokens."""

    def choose(self, logits: Sequence[Context], asks: Sequence[Ask]) -> list[Choice]:
        self.asked += asks
        return [Choice(ask.parents, tuple(self._tokens(logits, ask))) for ask in asks]

    def _tokens(self, logits: Sequence[Context], ask: Ask) -> Iterator[tuple[Drawn, ...]]:
        for parent, sample_index in zip(ask.parents, ask.sample_indices, strict=True):
            asking, taken = ask.sequences[parent], []
            self.read.append(len(logits[asking.rows[0]]))
            for row, draft in zip(asking.rows, (*asking.drafts, None), strict=True):
                taken.append(Drawn(self._says(logits[row], ask.parameters.seed, sample_index)))
                if taken[-1].token_id != draft:
                    break
            yield tuple(taken)


class TimedModel(PagedModel):
    """Takes so many seconds for a step and for each of its rows."""

    def __init__(self, page_count: int, clock: HandClock, *, step_s: float = 0.010, row_s: float = 0.001) -> None:
        super().__init__(page_count)
        self._clock = clock
        self._step_s = step_s
        self._row_s = row_s

    def forward(self, batch: Batch) -> list[Context]:
        self._clock.now += self._step_s + batch.row_count * self._row_s
        return super().forward(batch)


class Room:
    """An engine whose model costs time, with a draft model when it is told what that says."""

    def __init__(
        self,
        says: Says = repeating,
        *,
        draft_says: Says | None = None,
        draft_pages: int = PAGES,
        draft_step_s: float = 0.001,
        draft_context: int = 2048,
        row_s: float = 0.001,
    ) -> None:
        self.clock = HandClock()
        self.model = TimedModel(PAGES, self.clock, row_s=row_s)
        self.draft_model = TimedModel(draft_pages, self.clock, step_s=draft_step_s, row_s=0.0)
        self.draft_sampler = SpeakingSampler(draft_says or says)

        def make_drafting() -> Drafting:
            draft = None
            if draft_says is not None:
                draft = DraftModel(
                    self.draft_model,
                    self.draft_sampler,
                    page_count=draft_pages,
                    context_length=draft_context,
                    clock=self.clock,
                )
            return Drafting(clock=self.clock, eos_token_ids=frozenset({EOS}), model=draft)

        self.engine = Engine(
            self.model,
            SpeakingSampler(says),
            EngineLimits(PAGES, page_bytes=1000, session_ttl_s=1e9, max_sessions=8),
            make_transcript=make_transcript,
            eos_token_ids=frozenset({EOS}),
            clock=self.clock,
            make_drafting=make_drafting,
        )

    def ask(self, request: GenerationRequest) -> Finished:
        finished = run(self.engine, request)
        self.engine.check_books()
        return finished

    def drafted_rows(self) -> list[int]:
        """Of every step after the first how many rows were guesses, for one text at a time."""
        return [batch.row_count - 1 for batch in self.model.batches[1:]]


PROMPT = tuple(range(2, 2 + PERIOD)) * 2


def request(mode: Speculation = "auto", prompt: Sequence[int] = PROMPT, **given: Any) -> GenerationRequest:
    made = make_request(prompt, **{"max_new_tokens": 60, **given})
    return replace(made, parameters=replace(made.parameters, speculation=mode))


def test_a_text_that_repeats_takes_few_steps() -> None:
    room = Room()

    finished = room.ask(request())

    assert ids_of(finished) == [PROMPT[number % PERIOD] for number in range(60)]
    assert len(room.model.batches) < 20
    assert finished.speculation.accepted_tokens > 40
    assert finished.usage.generated_tokens == 60


def test_off_guesses_nothing() -> None:
    room = Room()

    finished = room.ask(request("off"))

    assert (60, 0) == (len(room.model.batches), finished.speculation.drafted_tokens)


def test_a_text_that_never_repeats_is_hardly_guessed_for() -> None:
    room = Room(free)
    asked = request(prompt=tuple(range(2, 38)) * 3, max_new_tokens=200)

    finished = room.ask(asked)

    assert ids_of(finished) == expected_ids(asked)
    assert finished.speculation.drafted_tokens <= 10


def wavering(context: Context, seed: int, sample_index: int) -> int:
    """Repeats itself two times in three."""
    other = free(context, seed, sample_index)
    return other if other % 3 == 0 else repeating(context, seed, sample_index)


@pytest.mark.parametrize(("row_s", "most"), [(0.0001, 0.7), (1.0, 1.1)])
def test_guesses_that_often_fail_are_made_only_where_rows_are_cheap(row_s: float, most: float) -> None:
    """The share of the time that the text takes without guesses."""
    times = {}
    modes: tuple[Speculation, ...] = ("off", "auto")
    for mode in modes:
        room = Room(wavering, row_s=row_s)
        room.ask(request(mode, max_new_tokens=500))
        times[mode] = room.clock.now - 1000.0

    assert times["auto"] <= most * times["off"]


def test_the_number_of_guesses_grows_while_they_hold() -> None:
    """The prompt's first tokens come again once; the more of it follows, the surer is what comes next."""
    room = Room()

    room.ask(request(prompt=PROMPT[: PERIOD + 2], max_new_tokens=100))

    rows = [count for count in room.drafted_rows() if count]
    assert rows[0] < max(rows)


def test_no_guess_passes_the_limit_of_tokens() -> None:
    for limit in range(1, 40):
        room = Room()
        finished = room.ask(request("prompt_lookup", max_new_tokens=limit))
        assert limit == finished.usage.generated_tokens
        assert len(PROMPT) + limit - 1 == max(
            segment.start + len(segment.token_ids) for batch in room.model.batches for segment in batch.segments
        )


@pytest.mark.parametrize("ignores_eos", [True, False])
def test_no_guess_ends_a_text(ignores_eos: bool) -> None:
    prompt = (*range(2, 1 + PERIOD), EOS) * 2
    asked = request("prompt_lookup", prompt)
    asked = replace(asked, parameters=replace(asked.parameters, ignore_eos=ignores_eos))
    room = Room()

    finished = room.ask(asked)

    guessed = {token for batch in room.model.batches[1:] for s in batch.segments for token in s.token_ids[1:]}
    assert ignores_eos == (EOS in guessed)
    assert ("length" if ignores_eos else "eos") == finished.completions[0].finish_reason


def test_what_follows_a_stop_in_an_accepted_run_is_dropped() -> None:
    """The stop string is complete in the middle of guesses that all hold."""
    stop = "".join(chr(ord("0") + token) for token in PROMPT[3:5])

    answers = {mode: Room().ask(request(mode, stop=(stop,))) for mode in ("off", "prompt_lookup", "auto")}

    assert ["stop"] * 3 == [answer.completions[0].finish_reason for answer in answers.values()]
    assert {5} == {answer.usage.generated_tokens for answer in answers.values()}
    assert 1 == len({(tuple(ids_of(answer)), answer.completions[0].text) for answer in answers.values()})


def test_tokens_that_were_dropped_after_a_stop_are_not_accepted() -> None:
    stop = chr(ord("0") + PROMPT[30 % PERIOD])
    finished = Room().ask(request("prompt_lookup", stop=(stop,), max_new_tokens=100))

    assert finished.speculation.accepted_tokens < finished.usage.generated_tokens
    assert finished.speculation.accepted_tokens <= finished.speculation.drafted_tokens


@pytest.mark.parametrize("length", range(26, 40))
def test_positions_of_dropped_tokens_are_not_kept(length: int) -> None:
    """A text ends by a stop string, within guesses that all hold and reach over the end of a page."""
    rising = tuple(range(2, 38))
    room = Room(lambda context, *_: rising[len(context) % 36])
    prompt = (*rising, *rising[:22])
    first = request("prompt_lookup", prompt, session_id="s", stop=(chr(ord("0") + rising[(length + 21) % 36]),))
    history = (*prompt, *ids_of(room.ask(first)))

    finished = room.ask(request("off", (*history, 5), session_id="s", request_id="q"))

    assert len(prompt) < len(history) < len(prompt) + 40
    assert len(history) - 1 == finished.cache.reused_tokens
    assert 0 == room.model.misread


def test_a_request_that_insists_gets_guesses_that_do_not_pay() -> None:
    finished = Room(row_s=1.0).ask(request("prompt_lookup"))

    assert finished.speculation.drafted_tokens >= 25


@pytest.mark.parametrize(("texts", "guessed"), [(FEW_TEXTS, True), (FEW_TEXTS + 1, False), (MOST_TEXTS + 1, False)])
def test_under_load_even_a_request_that_insists_gets_none(texts: int, guessed: bool) -> None:
    room = Room(row_s=1.0)
    for number in range(texts):
        room.engine.submit(request("prompt_lookup", request_id=f"r{number}", max_new_tokens=200, use_cache=False), 0.0)
    while room.engine.step()[1].prefill_rows:
        pass
    for _ in range(3):
        room.engine.step()

    reports = [room.engine.step()[1] for _ in range(3)]

    assert guessed == any(report.drafted_tokens for report in reports)


def test_guesses_are_reported_step_by_step() -> None:
    room = Room()
    room.engine.submit(request(), 0.0)
    reports = []
    terminal = None
    while not room.engine.is_idle:
        events, report = room.engine.step()
        reports.append(report)
        terminal = events[-1] if events else terminal

    assert isinstance(terminal, Finished)
    assert terminal.speculation.drafted_tokens == sum(report.drafted_tokens for report in reports)
    assert terminal.speculation.accepted_tokens == sum(report.accepted_tokens for report in reports)


def test_rejected_positions_are_not_kept() -> None:
    """A second turn reads what the first one left; a position of a rejected guess would change it."""
    room = Room(free)
    prompt = tuple(range(2, 8)) * 8
    first = request("prompt_lookup", prompt, session_id="s", max_new_tokens=80)
    history = (*prompt, *ids_of(room.ask(first)))
    second = request("prompt_lookup", (*history, 5), session_id="s", request_id="q", max_new_tokens=40)

    finished = room.ask(second)

    assert expected_ids(second) == ids_of(finished)
    assert len(history) - 1 == finished.cache.reused_tokens
    assert 0 == room.model.misread


class EvenOnly:
    """A constraint that takes even tokens."""

    failed = False

    def accepts(self, drafts: Sequence[int]) -> int:
        return next((number for number, token in enumerate(drafts) if token % 2), len(drafts))


def test_guesses_stop_where_a_constraint_would_not_take_them() -> None:
    room = Room()
    room.engine.submit(request("prompt_lookup"), 0.0)
    for _ in range(4):
        room.engine.step()
    (active,) = room.engine._scheduler._running
    active.sequences[0].constraint = EvenOnly()  # type: ignore[assignment]

    plan = room.engine._scheduler.plan(0.0)

    assert plan is not None
    assert all(draft % 2 == 0 for draft in plan.rows[0].drafts)


def test_a_draft_model_that_agrees_is_always_accepted() -> None:
    room = Room(free, draft_says=free)
    asked = request("draft", max_new_tokens=100, sample_count=2)

    finished = room.ask(asked)

    assert [expected_ids(asked, index) for index in (0, 1)] == [ids_of(finished, index) for index in (0, 1)]
    assert finished.speculation.drafted_tokens == finished.speculation.accepted_tokens > 100


def test_auto_uses_a_draft_model_that_pays() -> None:
    room = Room(free, draft_says=free)
    asked = request(max_new_tokens=100)

    finished = room.ask(asked)

    assert expected_ids(asked) == ids_of(finished)
    assert finished.speculation.accepted_tokens > 50
    assert len(room.model.batches) < 50


@pytest.mark.parametrize(
    "bad", [{"draft_says": free, "draft_step_s": 0.02}, {"draft_says": lambda *_: 3}], ids=["slow", "wrong"]
)
def test_auto_tries_a_draft_model_that_does_not_pay_for_little_time(bad: dict[str, Any]) -> None:
    """About a hundredth of the time, after what is needed to find out."""
    room = Room(free, **bad)

    room.ask(request(max_new_tokens=1500))

    taken = room.clock.now - 1000.0
    drafting_s = len(room.draft_model.batches) * (bad.get("draft_step_s") or 0.001)
    assert 0 < drafting_s < TRIAL_S + 0.03 * taken


def test_a_text_for_which_there_are_no_pages_goes_on_without_guesses() -> None:
    room = Room(free, draft_says=free, draft_pages=2)
    asked = request("draft", max_new_tokens=100)

    finished = room.ask(asked)

    assert expected_ids(asked) == ids_of(finished)
    assert (0, []) == (finished.speculation.drafted_tokens, room.draft_model.batches)


def test_beyond_the_draft_models_context_nothing_is_guessed() -> None:
    room = Room(free, draft_says=free, draft_context=64)
    asked = request("draft", max_new_tokens=100)

    finished = room.ask(asked)

    assert expected_ids(asked) == ids_of(finished)
    assert 0 < finished.speculation.drafted_tokens < 64


def test_a_draft_model_that_fails_takes_no_request_with_it(caplog: pytest.LogCaptureFixture) -> None:
    room = Room(free, draft_says=free)
    room.draft_model.fault = RuntimeError("injected")
    asked = request("draft", max_new_tokens=50)

    finished = room.ask(asked)

    assert expected_ids(asked) == ids_of(finished)
    assert 1 == len(room.draft_model.batches)
    assert ["the draft model failed and is not used any more"] == [record.message for record in caplog.records]


def test_the_draft_model_draws_as_the_model_will() -> None:
    """The same seed, sample and number of the token, and no log-probabilities, which nobody reads."""
    room = Room(free, draft_says=free)
    asked = request("draft", seed=7, sample_count=2, max_new_tokens=20)

    room.ask(asked)

    numbers = [ask.sequences[0].generated for ask in room.draft_sampler.asked]
    assert {(0,), (1,)} == {ask.sample_indices for ask in room.draft_sampler.asked}
    assert {7} == {ask.parameters.seed for ask in room.draft_sampler.asked}
    assert [len(PROMPT) + number for number in numbers] == room.draft_sampler.read


def test_the_draft_model_reads_what_came_true_and_nothing_else() -> None:
    """It is wrong one time in three, and the first guess of every step stands on the text as it is."""
    room = Room(free, draft_says=lambda *what: free(*what) if len(what[0]) % 3 else 3)
    asked = request("draft", max_new_tokens=60)
    truth = (*PROMPT, *expected_ids(asked))
    first: dict[int, Context] = {}
    forward = room.draft_model.forward

    def watched(batch: Batch) -> list[Context]:
        (context,) = forward(batch)
        first.setdefault(len(room.model.batches), context)
        return [context]

    room.draft_model.forward = watched  # type: ignore[method-assign]

    finished = room.ask(asked)

    assert 0 < finished.speculation.accepted_tokens < finished.speculation.drafted_tokens
    assert [truth[: len(context)] for context in first.values()] == list(first.values())


def test_a_long_prompt_is_read_by_the_draft_model_in_pieces() -> None:
    room = Room(free, draft_says=free)
    prompt = tuple(range(2, 38)) * 10
    asked = request("draft", prompt, max_new_tokens=100)

    finished = room.ask(asked)

    assert expected_ids(asked) == ids_of(finished)
    assert finished.speculation.accepted_tokens > 0
    assert max(batch.row_count for batch in room.draft_model.batches) < len(prompt)


@pytest.mark.parametrize("mode", ["prompt_lookup", "draft", "auto"])
def test_a_cancelled_request_leaves_no_page_leased(mode: Speculation) -> None:
    room = Room(draft_says=repeating)
    room.engine.submit(request(mode), 0.0)
    for _ in range(5):
        room.engine.step()

    room.engine.cancel("r")

    room.engine.check_books()


def test_after_a_fault_of_a_step_nothing_is_leased_anywhere() -> None:
    room = Room(free, draft_says=free)
    room.engine.submit(request("draft"), 0.0)
    for _ in range(5):
        room.engine.step()
    room.model.fault = RuntimeError("injected")

    run_until_idle(room.engine)

    room.engine.check_books()
