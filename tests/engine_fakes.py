"""A scripted model for the engine room: pages hold token ids instead of keys, and every id read shapes the answer.

A read of a page that was never written, was given away or belongs to someone else changes the text or raises, so that
any mistake in the arithmetic of pages shows in what comes out. `expected_ids` is the truth without a cache.
"""

import hashlib
from collections.abc import Iterable, Iterator, Sequence

from model.batch import Batch
from model.decoding.choice import Ask, Choice
from model.decoding.params import DecodingParameters, Drawn, LogprobOptions, Score
from model.decoding.transcript import Transcript
from model.kv_cache import PAGE_SIZE
from service.engine import Engine, EngineLimits
from service.request import Failed, Finished, GenerationRequest, RequestEvent

VOCABULARY = 40
EOS = 1
NAN = 39
"""A prompt that holds this id makes the model's logits NaN."""
UNWRITTEN = -1

Context = tuple[int, ...]


def next_id(context: Sequence[int], seed: int, sample_index: int) -> int:
    """What the scripted model says after these ids."""
    digest = hashlib.blake2b(repr((tuple(context), seed, sample_index)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % (VOCABULARY - 2) + 1


def scored_logprob(context: Sequence[int], token_id: int) -> float:
    """What the scripted model says of a token after these ids."""
    return -next_id((*context, token_id), seed=0, sample_index=0) / VOCABULARY


def expected_ids(request: GenerationRequest, sample_index: int = 0) -> list[int]:
    """What a sample generates when nothing cuts it short."""
    ids: list[int] = []
    while len(ids) < request.parameters.max_new_tokens:
        ids.append(next_id((*request.prompt_ids, *ids), request.parameters.seed, sample_index))
        if ids[-1] == EOS and not request.parameters.ignore_eos:
            break
    return ids


class PagedModel:
    """A runner over pages of token ids."""

    def __init__(self, page_count: int) -> None:
        self.pages = [[UNWRITTEN] * PAGE_SIZE for _ in range(page_count)]
        self.batches: list[Batch] = []
        self.fault: BaseException | None = None
        self.misread = 0
        """How often a position was read that nobody wrote."""

    def forward(self, batch: Batch) -> list[Context]:
        self.batches.append(batch)
        if self.fault is not None:
            fault, self.fault = self.fault, None
            raise fault
        for copy in batch.copies:
            self.pages[copy.target][: copy.positions] = self.pages[copy.source][: copy.positions]
        for segment in batch.segments:
            for position, token_id in enumerate(segment.token_ids, start=segment.start):
                self.pages[segment.pages[position // PAGE_SIZE]][position % PAGE_SIZE] = token_id
        return [
            self._read(segment.pages, segment.start + end)
            for segment in batch.segments
            for end in range(len(segment.token_ids) - segment.asks + 1, len(segment.token_ids) + 1)
        ]

    def _read(self, pages: Sequence[int], length: int) -> Context:
        context = tuple(self.pages[pages[position // PAGE_SIZE]][position % PAGE_SIZE] for position in range(length))
        self.misread += UNWRITTEN in context
        return context


class ScriptedSampler:
    """Draws what `next_id` says from the ids that the model read."""

    def choose(self, logits: Sequence[Context], asks: Sequence[Ask]) -> list[Choice]:
        return [
            Choice(ask.parents, tuple(self._draw(logits, ask)), tuple(self._score(logits, each) for each in ask.prompt))
            for ask in asks
        ]

    @staticmethod
    def _score(logits: Sequence[Context], score: Score) -> Drawn:
        context = logits[score.row]
        return Drawn(None) if NAN in context else Drawn(score.token_id, scored_logprob(context, score.token_id))

    @staticmethod
    def _draw(logits: Sequence[Context], ask: Ask) -> Iterator[tuple[Drawn, ...]]:
        for parent, sample_index in zip(ask.parents, ask.sample_indices, strict=True):
            asking = ask.sequences[parent]
            taken: list[Drawn] = []
            for row, draft in zip(asking.rows, (*asking.drafts, None), strict=True):
                context = logits[row]
                token_id = None if NAN in context else next_id(context, ask.parameters.seed, sample_index)
                taken.append(Drawn(token_id))
                if token_id != draft:
                    break
            yield tuple(taken)


class LetterTokenizer:
    """Every id is one character."""

    def token_bytes(self, token_id: int) -> bytes:
        return chr(ord("0") + token_id).encode()


class HandClock:
    """Time that moves when told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def make_transcript(request: GenerationRequest) -> Transcript:
    parameters = request.parameters
    return Transcript(
        LetterTokenizer(),
        stop=parameters.stop,
        min_new_tokens=parameters.min_new_tokens,
        known_tokens=len(request.resumed_ids),
    )


def make_engine(
    *,
    page_count: int = 64,
    clock: HandClock | None = None,
    session_ttl_s: float = 100.0,
    max_sessions: int = 8,
    key_pages: int | None = None,
) -> tuple[Engine, PagedModel]:
    """An engine over the scripted model."""
    model = PagedModel(page_count)
    engine = Engine(
        model,
        ScriptedSampler(),
        EngineLimits(
            page_count, page_bytes=1000, session_ttl_s=session_ttl_s, max_sessions=max_sessions, key_pages=key_pages
        ),
        make_transcript=make_transcript,
        eos_token_ids=frozenset({EOS}),
        clock=clock or HandClock(),
    )
    return engine, model


def make_request(
    prompt_ids: Iterable[int],
    *,
    request_id: str = "r",
    max_new_tokens: int = 8,
    seed: int = 0,
    stop: tuple[str, ...] = (),
    stop_token_ids: tuple[int, ...] = (),
    sample_count: int = 1,
    session_id: str | None = None,
    use_cache: bool = True,
    deadline_s: float | None = None,
    streams: bool = False,
    logprobs: LogprobOptions | None = None,
    key_id: str | None = None,
) -> GenerationRequest:
    """A request that ignores EOS, so that lengths are what the test says."""
    return GenerationRequest(
        id=request_id,
        prompt_ids=tuple(prompt_ids),
        parameters=DecodingParameters(
            max_new_tokens, seed, stop=stop, stop_token_ids=stop_token_ids, ignore_eos=True, logprobs=logprobs
        ),
        sample_count=sample_count,
        session_id=session_id,
        use_cache=use_cache,
        deadline_s=deadline_s,
        streams=streams,
        key_id=key_id,
    )


def run_until_idle(engine: Engine, *, most_steps: int = 10_000) -> list[RequestEvent]:
    """Every event until nothing runs."""
    events: list[RequestEvent] = []
    for _ in range(most_steps):
        if engine.is_idle:
            return events
        events += engine.step()[0]
    raise AssertionError("the engine does not come to rest")


def run(engine: Engine, request: GenerationRequest) -> Finished:
    """Run one request to its end."""
    engine.submit(request, 0.0)
    terminal = run_until_idle(engine)[-1]
    assert isinstance(terminal, Finished), terminal
    return terminal


def ids_of(terminal: Finished | Failed, index: int = 0) -> list[int]:
    assert isinstance(terminal, Finished), terminal
    return [record.token_id for record in terminal.completions[index].tokens]
