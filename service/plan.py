"""What one step will run: which rows of which sequences, as a batch and as questions to the sampler.

Knows sequences, pages and tokens ids; decides nothing. Always: logits come back in the order of the asking segments.
"""

from dataclasses import dataclass

from model.batch import Batch, PageCopy, Segment
from model.decoding.choice import Ask
from service.sequence import Active, Sequence


@dataclass(frozen=True, slots=True)
class PlannedRows:
    """One segment of the batch, and whose it is."""

    active: Active
    sequence: Sequence
    count: int

    def segment(self) -> Segment:
        """The rows themselves; takes the pages that they will be written to."""
        lease, prompt = self.sequence.lease, self.active.request.prompt_ids
        start, end = lease.length, lease.length + self.count
        lease.extend(end)
        ids = prompt[start:end] if self.active.is_prefilling else (self.sequence.ids[-1],)
        return Segment(ids, start, tuple(lease.pages), asks=end >= len(prompt))


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
    asking: dict[str, Active] = {}
    asked: dict[str, list[int]] = {}
    row = 0
    for each, segment in zip(rows, segments, strict=True):
        if segment.asks:
            asking[each.active.id] = each.active
            asked.setdefault(each.active.id, []).append(row)
            row += 1
    asks = tuple(_ask(active, tuple(asked[key])) for key, active in asking.items())
    return Plan(Batch(segments, copies), tuple(rows), tuple(asking.values()), asks)


def _ask(active: Active, rows: tuple[int, ...]) -> Ask:
    request = active.request
    if active.is_prefilling:
        parents, indices = (0,) * request.sample_count, tuple(range(request.sample_count))
    else:
        parents, indices = tuple(range(len(rows))), tuple(each.index for each in active.sequences)
    return Ask(rows, parents, indices, active.sequences[0].generated, request.parameters)
