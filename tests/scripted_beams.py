"""Beam searches in the scripted engine: logits are made of the ids that the model read, and ranked slowly."""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from model.decoding.choice import Ask, Choice
from model.decoding.params import Draw, Drawn, Ranked, Ranking, Score
from model.decoding.sampler import Sampler
from service.engine import Engine, EngineLimits
from service.request import Finished, GenerationRequest
from tests.engine_fakes import EOS, NAN, Context, HandClock, PagedModel, ScriptedSampler, make_transcript
from tests.reference import beams as reference
from tests.reference.beams import Found, Row, Tokens

VOCABULARY = 8
"""Few, so that beams often meet their end and each other's beginnings."""


def logits_after(context: Sequence[int]) -> Row:
    """What the scripted model says after these ids: numbers that are fixed at random."""
    rng = np.random.default_rng(list(context))
    return (2.0 * rng.normal(size=VOCABULARY)).astype(np.float32)


class ScriptedOps:
    """Ranks and scores what `logits_after` says of what it sees of the contexts that the model read."""

    def __init__(self, sees: Callable[[Context], Context] = lambda context: context) -> None:
        self._sees = sees

    def choose(self, logits: Sequence[Context], draws: Sequence[Draw]) -> list[Drawn]:
        raise NotImplementedError

    def rank(self, logits: Sequence[Context], rankings: Sequence[Ranking]) -> list[tuple[Ranked, ...]]:
        return [self._rank(logits[each.row], each) for each in rankings]

    def read_logits(self, logits: Sequence[Context], rows: Sequence[int]) -> NDArray[np.float32]:
        raise NotImplementedError

    def score(self, logits: Sequence[Context], scores: Sequence[Score]) -> list[Drawn]:
        rows = [reference.log_softmax(logits_after(logits[each.row])) for each in scores]
        return [Drawn(each.token_id, row[each.token_id % VOCABULARY]) for each, row in zip(scores, rows, strict=True)]

    def _rank(self, context: Context, ranking: Ranking) -> tuple[Ranked, ...]:
        if NAN in context:
            return ()
        row = logits_after(self._sees(context))
        logprobs = reference.log_softmax(row)
        ids = [token for token in range(VOCABULARY) if token not in ranking.banned]
        ids.sort(key=lambda token: (-row[token], token))
        return tuple(Ranked(token, logprobs[token], float(row[token])) for token in ids[: ranking.count])


class BeamSampler:
    """Samples as the scripted sampler does, and searches as the real one does."""

    def __init__(self, sees: Callable[[Context], Context] = lambda context: context) -> None:
        self._scripted = ScriptedSampler()
        self._real = Sampler(ScriptedOps(sees), frozenset({EOS}))

    def choose(self, logits: Sequence[Context], asks: Sequence[Ask]) -> list[Choice]:
        searches = [ask.parameters.beam_width > 1 for ask in asks]
        pairs = list(zip(asks, searches, strict=True))
        searched = iter(self._real.choose(logits, [ask for ask, searching in pairs if searching]))
        sampled = iter(self._scripted.choose(logits, [ask for ask, searching in pairs if not searching]))
        return [next(searched if searching else sampled) for searching in searches]


def make_beam_engine(
    *,
    page_count: int = 64,
    clock: HandClock | None = None,
    max_sessions: int = 8,
    sees: Callable[[Context], Context] = lambda context: context,
) -> tuple[Engine, PagedModel]:
    """`sees` is what of a context shapes what comes next."""
    model = PagedModel(page_count)
    engine = Engine(
        model,
        BeamSampler(sees),
        EngineLimits(page_count, page_bytes=1000, session_ttl_s=100.0, max_sessions=max_sessions),
        make_transcript=make_transcript,
        eos_token_ids=frozenset({EOS}),
        clock=clock or HandClock(),
    )
    return engine, model


def expected(request: GenerationRequest) -> tuple[list[Found], str]:
    """What the slow search finds, without pages or an engine."""
    parameters = request.parameters

    def model(tokens: Tokens) -> Row:
        return logits_after((*request.prompt_ids, *tokens))

    def ends(tokens: Tokens) -> str | None:
        if tokens[-1] == EOS and not parameters.ignore_eos:
            return "eos"
        return "stop" if tokens[-1] in parameters.stop_token_ids else None

    found, stopped = reference.beam_search(
        model,
        width=parameters.beam_width,
        most=parameters.max_new_tokens,
        alpha=parameters.length_penalty,
        ends=ends,
    )
    return found[: request.sample_count], stopped


def answers_of(finished: Finished) -> list[tuple[Tokens, str]]:
    return [(tuple(t.token_id for t in each.tokens), each.finish_reason) for each in finished.completions]
