"""What one step will run: which rows of which sequences, as a batch and as questions to the sampler.

Knows sequences, pages and tokens ids; decides nothing. Always: logits come back in the order of the asking segments.
"""

from dataclasses import dataclass

from model.batch import Batch, PageCopy, Segment
from model.decoding.choice import Ask, Asking
from model.decoding.params import Score
from service.beams import Beam
from service.sequence import Active, Sequence


@dataclass(frozen=True, slots=True)
class PlannedRows:
    """One segment of the batch, and whose it is."""

    active: Active
    sequence: Sequence | Beam
    count: int

    drafts: tuple[int, ...] = ()
    """Tokens guessed to follow the sequence's last one."""

    @property
    def sample(self) -> Sequence:
        """The sequence of a request that draws its tokens: a beam's rows have none."""
        assert isinstance(self.sequence, Sequence), "a beam is no sample"
        return self.sequence

    def segment(self) -> Segment:
        """The rows themselves; takes the pages that they will be written to."""
        lease = self.sequence.lease
        start, end = lease.length, lease.length + self.count
        lease.extend(end)
        if not self.active.is_prefilling:
            ids, asks = (self.sequence.last_id, *self.drafts), self.count
        else:
            ids = self.active.context_ids[start:end]
            asks = self.active.asked(start, end)
        return Segment(ids, start, tuple(lease.pages), asks)


@dataclass(frozen=True, slots=True)
class Plan:
    """The batch, whose rows they are, and what is asked of the sampler."""

    batch: Batch
    rows: tuple[PlannedRows, ...]
    asking: tuple[Active, ...]
    asks: tuple[Ask, ...]

    @property
    def actives(self) -> list[Active]:
        """Every request with rows in the batch, once."""
        return list({rows.active.id: rows.active for rows in self.rows}.values())


def assemble(rows: list[PlannedRows], copies: tuple[PageCopy, ...]) -> Plan:
    """Turn planned rows into a plan. Takes pages, so `copies` were collected before and come first."""
    segments = tuple(each.segment() for each in rows)
    asking: dict[str, list[tuple[PlannedRows, range]]] = {}
    first = 0
    for each, segment in zip(rows, segments, strict=True):
        if segment.asks:
            asking.setdefault(each.active.id, []).append((each, range(first, first + segment.asks)))
            first += segment.asks
    asks = tuple(_ask(of_one) for of_one in asking.values())
    return Plan(Batch(segments, copies), tuple(rows), tuple(of_one[0][0].active for of_one in asking.values()), asks)


def _ask(planned: list[tuple[PlannedRows, range]]) -> Ask:
    each, rows = planned[0]
    active, request = each.active, each.active.request
    if not active.is_prefilling:
        sequences = tuple(_asking(each, rows) for each, rows in planned)
        if active.beams is not None:
            return Ask(sequences, (), (), request.parameters, search=active.beams.search)
        return Ask(
            sequences, tuple(range(len(planned))), tuple(e.sequence.index for e, _ in planned), request.parameters
        )
    if request.logits is not None:
        return Ask((), (), (), request.parameters, raw=tuple(rows))
    scores = _prompt_scores(each, rows) if active.scores_prompt else ()
    drawn = _context_rows(each, rows)
    if not drawn.rows:
        return Ask((), (), (), request.parameters, scores)
    if active.beams is not None:
        return Ask((drawn,), (), (), request.parameters, scores, active.beams.search)
    count = request.sample_count
    return Ask((drawn,), (0,) * count, tuple(range(count)), request.parameters, scores)


def _asking(each: PlannedRows, rows: range) -> Asking:
    sequence = each.sequence
    return Asking(tuple(rows), sequence.generated, each.drafts, sequence.history, sequence.constraint)


def _context_rows(each: PlannedRows, rows: range) -> Asking:
    """What the rows from the prompt's last one on draw: the resumed tokens, where they are retraced, then a new one."""
    active, sequence = each.active, each.sequence
    end = sequence.lease.length + each.count
    prompt_tokens = len(active.request.prompt_ids)
    first = (prompt_tokens if active.retraces else len(active.context_ids)) - 1
    drawn = rows[len(rows) - min(len(rows), max(0, end - first)) :]
    given = active.request.resumed_ids[sequence.generated : end + 1 - prompt_tokens] if active.retraces else ()
    return Asking(tuple(drawn), sequence.generated, (), sequence.history, sequence.constraint, given)


def _prompt_scores(each: PlannedRows, rows: range) -> tuple[Score, ...]:
    """The row of each prompt token says how likely the next one was."""
    request, start = each.active.request, each.sequence.lease.length
    options = request.parameters.logprobs
    following = request.prompt_ids[start + 1 : start + 1 + len(rows)]
    top = options.top if options is not None else 0
    return tuple(Score(row, token_id, top) for row, token_id in zip(rows, following, strict=False))
