"""Sampling: what each sequence of a step draws, with which uniform and which bans.

Knows which ids end a text and how far each sequence has come; never looks at logits, which the op set reads.
Always: one call of the op set a step, whatever the number of requests.
Always: a token's uniform depends on its seed, sample index and number alone, so that neither the length of
the prompt nor a resumed or batched run moves it.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

from model.decoding.choice import Ask, Choice
from model.decoding.params import Draw, Drawn
from model.native._native import philox_uniform


class Sampler:
    """Draws one token for each sequence of each request (greedily at temperature 0)."""

    def __init__(self, choose: Callable[[Any, Sequence[Draw]], list[Drawn]], eos_token_ids: frozenset[int]) -> None:
        """`choose` is the op set's: one `Drawn` for each draw from logits [rows, vocabulary]."""
        self._choose = choose
        self._eos_token_ids = eos_token_ids

    def choose(self, logits: Any, asks: Sequence[Ask]) -> list[Choice]:
        """One choice for each ask, in their order; every sequence gains exactly one token."""
        drawn = iter(self._choose(logits, [draw for ask in asks for draw in self._draws(ask)]))
        return [
            Choice(parents=ask.parents, tokens=tuple((token,) for token in islice(drawn, len(ask.parents))))
            for ask in asks
        ]

    def _draws(self, ask: Ask) -> Iterator[Draw]:
        parameters, banned = ask.parameters, self._banned(ask)
        for parent, sample_index in zip(ask.parents, ask.sample_indices, strict=True):
            yield Draw(
                row=ask.rows[parent],
                temperature=parameters.temperature,
                top_k=parameters.top_k,
                top_p=parameters.top_p,
                min_p=parameters.min_p,
                uniform=philox_uniform(parameters.seed, sample_index, ask.generated),
                banned=banned,
                logprobs=parameters.logprobs,
            )

    def _banned(self, ask: Ask) -> tuple[int, ...]:
        """Before `min_new_tokens` nothing may end the text; an ignored EOS is an ordinary token."""
        parameters = ask.parameters
        if ask.generated >= parameters.min_new_tokens:
            return ()
        ending = frozenset() if parameters.ignore_eos else self._eos_token_ids
        return tuple(sorted(ending.union(parameters.stop_token_ids)))
