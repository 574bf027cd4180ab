"""What a row of logits goes through before it is chosen from: bias and penalties, then the mask. For the torch op set.

Knows rows and ids; not why a token is penalised or excluded.
Always: the row that is given stays as it is. Every operation is one of float32, in the order that `LogitEdits` states.
"""

import math

import numpy as np

from model.decoding.filters import Floats
from model.decoding.params import Draw, LogitEdits, Ranking


def biased(row: Floats, edits: LogitEdits) -> Floats:
    """A row [vocabulary] with the bias added."""
    changed = row.copy()
    changed[edits.bias_ids] += edits.bias_values
    return changed


def penalised(row: Floats, edits: LogitEdits) -> Floats:
    """A row [vocabulary] with the seen tokens made less likely; it may come to hold a NaN or ±∞."""
    repetition = np.float32(edits.repetition)
    with np.errstate(all="ignore"):
        seen = row[edits.seen_ids]
        seen = np.where(seen > 0.0, seen / repetition, seen * repetition)
        taken = np.float32(edits.frequency) * edits.seen_counts.astype(np.float32) + np.float32(edits.presence)
        seen = np.where(edits.seen_counts > 0, seen - taken, seen)
    changed = row.copy()
    changed[edits.seen_ids] = seen
    return changed


def penalises(edits: LogitEdits) -> bool:
    """Whether `penalised` does anything."""
    return edits.seen_ids.size > 0 and (edits.repetition, edits.presence, edits.frequency) != (1.0, 0.0, 0.0)


def edited(row: Floats, edits: LogitEdits | None) -> Floats | None:
    """A row [vocabulary] without NaN or +∞ after all edits, or None where one of those would come of them."""
    if edits is None:
        return row
    with np.errstate(over="ignore"):
        changed = penalised(biased(row, edits), edits)
    return changed if (changed < math.inf).all() else None


def has_mask(asked: Draw | Ranking) -> bool:
    return bool(asked.banned) or asked.allowed is not None


def masked(row: Floats, asked: Draw | Ranking) -> Floats:
    """A row [vocabulary] with −∞ for what is banned or not allowed."""
    if not has_mask(asked):
        return row
    changed = row.copy()
    changed[list(asked.banned)] = -math.inf
    if asked.allowed is not None:
        octets = asked.allowed.astype("<u4").view(np.uint8)
        changed[np.unpackbits(octets, count=len(row), bitorder="little") == 0] = -math.inf
    return changed
