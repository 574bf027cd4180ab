"""What bias and penalties do to the logits of one sequence, kept up to date as its tokens come.

Knows token ids and counts; the op set applies what it answers. Always: control and EOS tokens are never penalised, so
that a text that may end stays as likely to end.
"""

from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray

from model.decoding.params import DecodingParameters, LogitEdits


class History:
    """The tokens that one sequence's penalties look at."""

    def __init__(self, parameters: DecodingParameters, prompt_ids: Iterable[int], exempt: frozenset[int]) -> None:
        penalties = parameters.penalties
        self._penalties = penalties
        self._exempt = exempt
        self._bias_ids: NDArray[np.int32] = np.array([each for each, _ in parameters.logit_bias], dtype=np.int32)
        self._bias_values: NDArray[np.float32] = np.array([each for _, each in parameters.logit_bias], dtype=np.float32)
        sees_prompt = penalties.repetition != 1.0 and penalties.scope == "all"
        self._counts = dict.fromkeys((each for each in prompt_ids if each not in exempt), 0) if sees_prompt else {}

    def push(self, token_id: int) -> None:
        """A token was generated."""
        if self._penalties.active and token_id not in self._exempt:
            self._counts[token_id] = self._counts.get(token_id, 0) + 1

    def fork(self) -> Self:
        """The same history for a second sequence."""
        child = object.__new__(type(self))
        child.__dict__.update(self.__dict__, _counts=self._counts.copy())
        return child

    def edits(self) -> LogitEdits:
        """What to do to the next row."""
        count = len(self._counts)
        return LogitEdits(
            self._bias_ids,
            self._bias_values,
            np.fromiter(self._counts.keys(), np.int32, count),
            np.fromiter(self._counts.values(), np.int32, count),
            self._penalties.repetition,
            self._penalties.presence,
            self._penalties.frequency,
        )

    def edits_along(self, drafts: Sequence[int]) -> list[LogitEdits]:
        """The edits of the next row, and of the rows that follow when each drafted token comes."""
        if not drafts:
            return [self.edits()]
        ahead, along = self.fork(), [self.edits()]
        for token_id in drafts:
            ahead.push(token_id)
            along.append(ahead.edits())
        return along


def history_of(parameters: DecodingParameters, prompt_ids: Iterable[int], exempt: frozenset[int]) -> History | None:
    """None where nothing is added to or taken from any logit."""
    if not parameters.logit_bias and not parameters.penalties.active:
        return None
    return History(parameters, prompt_ids, exempt)
