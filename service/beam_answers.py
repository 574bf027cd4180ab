"""From a beam search to the texts that are returned: what all beams share while it runs, and the best when it ends.

Knows sequences and hypotheses; decides nothing about which are better.
Always: while a search runs, the request's sequences hold no pages, and no token but those that every answer will begin
with; when it has stopped, they are the answers, the best first, and the first holds the pages that may be kept.
"""

from collections.abc import Callable

from model.decoding.beam import Hypothesis, begin
from model.decoding.choice import Choice
from model.decoding.transcript import Transcript
from service.beams import Beams
from service.request import GenerationRequest
from service.sequence import Active, Sequence

MakeTranscript = Callable[[GenerationRequest], Transcript]


def begin_search(request: GenerationRequest, transcript: Transcript) -> Beams:
    """The search of an admitted request, before its prompt runs."""
    return Beams(begin(request.parameters, transcript.scan()), told=request.parameters.explain)


def grow_beams(active: Active, choice: Choice, make_transcript: MakeTranscript, eos_token_ids: frozenset[int]) -> int:
    """Take a step of the search; answers how many tokens the returned texts gained."""
    beams = _beams_of(active)
    if active.is_prefilling:
        _leave_prompt(active, make_transcript)
    beams.grow(choice)
    if beams.search.stopped is not None:
        return conclude_search(active, eos_token_ids)
    if not active.request.streams:
        return 0
    beams.shared.follow(beams.search)
    # Where fewer texts exist than are wanted, the answers that will be missing must have been told nothing.
    told = [(each, beams.tell(each.index, beams.shared.end)) for each in active.sequences[: beams.sure]]
    return sum(each.gain(tokens, active.request.parameters, eos_token_ids) for each, tokens in told)


def conclude_search(active: Active, eos_token_ids: frozenset[int]) -> int:
    """The search has stopped: its best are the answers. Answers how many tokens they gained."""
    beams = _beams_of(active)
    entries = beams.search.pool[: active.request.sample_count]
    active.sequences = active.sequences[: len(entries)]
    _keep_pages(active, entries[0].hypothesis)
    gained = 0
    for sequence, entry in zip(active.sequences, entries, strict=True):
        tokens = beams.tell(sequence.index, entry.hypothesis)
        gained += sequence.gain(tokens, active.request.parameters, eos_token_ids)
        sequence.finish_reason, sequence.logprob, sequence.score = (
            entry.finish_reason,
            entry.hypothesis.logprob,
            entry.score,
        )
    return gained


def let_beams_go(active: Active) -> None:
    """The request fails: its sequences own whatever pages there are, as those of any other request do."""
    if active.beams is not None:
        _keep_pages(active, active.beams.shared.end)


def _leave_prompt(active: Active, make_transcript: MakeTranscript) -> None:
    """The prompt's sequence becomes the first beam; the answers begin empty."""
    (prompt,) = active.sequences
    request = active.request
    _beams_of(active).begin(prompt.lease, prompt.history, prompt.constraint)
    active.sequences = [
        Sequence(index, prompt.lease.empty(), make_transcript(request), request.prompt_ids)
        for index in range(request.sample_count)
    ]


def _keep_pages(active: Active, target: Hypothesis) -> None:
    lease = _beams_of(active).give_up(target, len(active.request.prompt_ids))
    if lease is not None:
        active.sequences[0].lease = lease


def _beams_of(active: Active) -> Beams:
    assert active.beams is not None, "a request without beams searches nothing"
    return active.beams
