"""Sampling: what each sequence of a step draws, with which uniform, edits and bans, and how far its drafts hold.

Knows which ids end a text and how far each sequence has come; never looks at logits, which the op set reads.
Always: one call of the op set a step draws for everyone, whatever the number of requests.
Always: a token's uniform depends on its seed, sample index and number alone, so that neither the length of
the prompt nor a resumed, drafted or batched run moves it. A drafted token is accepted exactly where it is the token
that would have been drawn without it.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from model.decoding.beam_chooser import BeamChooser, Picked, Ranker
from model.decoding.choice import Ask, Asking, Choice, Constraint
from model.decoding.params import Draw, Drawn, LogitEdits, LogprobOptions, Score, TokenLogprob
from model.native._native import philox_uniform

Masks = Sequence[NDArray[np.uint32] | None]
Changes = tuple[Sequence[LogitEdits], Masks]

FAILED = Choice((), ((Drawn(None),),))
"""Of a search, or of logits, that a NaN has met."""


class Chooser(Ranker, Protocol):
    """The part of an op set that a sampler needs."""

    def choose(self, logits: Any, draws: Sequence[Draw]) -> list[Drawn]: ...

    def score(self, logits: Any, scores: Sequence[Score]) -> list[Drawn]: ...

    def read_logits(self, logits: Any, rows: Sequence[int]) -> NDArray[np.float32]: ...


class Sampler:
    """Draws the next tokens of each sequence of each request (greedily at temperature 0); beams are picked."""

    def __init__(self, ops: Chooser, eos_token_ids: frozenset[int]) -> None:
        self._ops = ops
        self._eos_token_ids = eos_token_ids
        self._beams = BeamChooser(ops, eos_token_ids)

    def choose(self, logits: Any, asks: Sequence[Ask]) -> list[Choice]:
        """One choice for each ask, in their order; a sequence gains one token, and more where its drafts hold."""
        draws: list[Draw] = []
        for ask in asks:
            self._add_draws(ask, draws)
        drawn = iter(self._ops.choose(logits, draws)) if draws else iter(())
        picked = self._pick(logits, asks)
        scored = self._score(logits, asks, picked)
        choices = []
        for index, ask in enumerate(asks):
            prompt, rest = scored[index][: len(ask.prompt)], scored[index][len(ask.prompt) :]
            if ask.raw:
                choices.append(self._read(logits, ask))
            elif index in picked:
                found = picked[index]
                choices.append(FAILED if found is None else found.choice(rest, prompt))
            else:
                choices.append(self._choice(logits, ask, drawn, prompt))
        return choices

    def _choice(self, logits: Any, ask: Ask, drawn: Iterator[Drawn], prompt: tuple[Drawn, ...]) -> Choice:
        tokens: list[tuple[Drawn, ...]] = []
        for parent in ask.parents:
            asking = ask.sequences[parent]
            if asking.given:
                retraced = self._retraced(logits, ask, asking, tuple(islice(drawn, len(asking.rows))))
                if retraced is None:
                    return Choice((), (), mismatch=True)
                tokens.append(retraced)
            elif not asking.drafts and asking.constraint is None:
                tokens.append((next(drawn),))
            else:
                tokens.append(self._settled(logits, ask, asking, tuple(islice(drawn, len(asking.rows)))))
        return Choice(ask.parents, tuple(tokens), prompt)

    def _read(self, logits: Any, ask: Ask) -> Choice:
        raw = self._ops.read_logits(logits, ask.raw)
        return FAILED if np.isnan(raw).any() else Choice((), (), raw=raw)

    def _pick(self, logits: Any, asks: Sequence[Ask]) -> dict[int, Picked | None]:
        """What the searches among the asks pick, by the ask's index."""
        searching = {
            index: (ask, ask.search, self.banned(ask, ask.sequences[0].generated))
            for index, ask in enumerate(asks)
            if ask.search is not None and ask.sequences
        }
        if not searching:
            return {}
        return dict(zip(searching, self._beams.pick(logits, list(searching.values())), strict=True))

    def _score(self, logits: Any, asks: Sequence[Ask], picked: Mapping[int, Picked | None]) -> list[tuple[Drawn, ...]]:
        """For each ask: its prompt's tokens, then what its search picked. One call of the op set."""
        if not picked and not any(ask.prompt for ask in asks):
            return [()] * len(asks)
        wanted: list[list[Score]] = []
        for index, ask in enumerate(asks):
            found = picked.get(index)
            wanted.append([*ask.prompt, *(found.scores() if found is not None else ())])
        every = [score for each in wanted for score in each]
        scored = iter(self._ops.score(logits, every)) if every else iter(())
        return [tuple(islice(scored, len(each))) for each in wanted]

    def _add_draws(self, ask: Ask, draws: list[Draw]) -> None:
        """One draw for each row of each sequence that goes on, in the order of the ask's `parents`."""
        parameters = ask.parameters
        changes: dict[int, Changes] = {}
        for parent, sample_index in zip(ask.parents, ask.sample_indices, strict=True):
            asking = ask.sequences[parent]
            if parent not in changes:
                changes[parent] = _changes_along(asking, parameters.max_new_tokens)
            edits, masks = changes[parent]
            for ahead, row in enumerate(asking.rows):
                number = asking.generated + ahead
                draws.append(
                    Draw(
                        row,
                        parameters.temperature,
                        parameters.top_k,
                        parameters.top_p,
                        parameters.min_p,
                        philox_uniform(parameters.seed, sample_index, number),
                        self.banned(ask, number),
                        edits[ahead] if edits else None,
                        masks[ahead] if masks else None,
                        parameters.logprobs,
                        parameters.explain,
                    )
                )

    def banned(self, ask: Ask, generated: int) -> tuple[int, ...]:
        """Before `min_new_tokens` nothing may end the text; an ignored EOS is an ordinary token."""
        parameters = ask.parameters
        if generated >= parameters.min_new_tokens:
            return parameters.banned_token_ids
        ending = frozenset() if parameters.ignore_eos else self._eos_token_ids
        return tuple(sorted(ending.union(parameters.stop_token_ids, parameters.banned_token_ids)))

    def _settled(self, logits: Any, ask: Ask, asking: Asking, drawn: tuple[Drawn, ...]) -> tuple[Drawn, ...]:
        """The tokens that stand: up to the first that is not the drafted one, which takes the draft's place.

        A draw that fails after a draft is left to the next step: the tokens before it may end the text.
        """
        taken: list[Drawn] = []
        advanced = 0
        constraint = asking.constraint
        for ahead, token in enumerate(drawn):
            settled = self._conforming(logits, ask, asking, ahead, token)
            if settled.token_id is None and ahead:
                break
            taken.append(settled)
            if ahead == len(asking.drafts) or settled.token_id != asking.drafts[ahead]:
                break
            if constraint is not None:
                constraint.advance(asking.drafts[ahead])
                advanced += 1
        if constraint is not None:
            constraint.rollback(advanced)
        return tuple(taken)

    def _retraced(self, logits: Any, ask: Ask, asking: Asking, drawn: tuple[Drawn, ...]) -> tuple[Drawn, ...] | None:
        """The given tokens with what their draws say of them, and the one that follows where its row is here.

        None where a given token was not drawn, and what it was drawn from, in which it may be missing, is asked about.
        """
        taken: list[Drawn] = []
        constraint, options = asking.constraint, ask.parameters.logprobs
        for ahead, token in enumerate(drawn):
            settled = self._conforming(logits, ask, asking, ahead, token)
            if settled.token_id is None or ahead >= len(asking.given):
                taken.append(settled)
                break
            given = asking.given[ahead]
            if settled.token_id != given:
                if options is not None and options.of == "sampled":
                    return None
                settled = self._instead(logits, asking.rows[ahead], settled, given, options)
            taken.append(settled)
            if constraint is not None and ahead + 1 < len(drawn):
                constraint.advance(given)
        if constraint is not None:
            constraint.rollback(len(taken) - 1)
        return tuple(taken)

    def _conforming(self, logits: Any, ask: Ask, asking: Asking, ahead: int, token: Drawn) -> Drawn:
        """What was drawn, or what the constraint takes in its place; a failed draw where the constraint gives up."""
        constraint = asking.constraint
        if constraint is None or token.token_id is None:
            return token
        token_id = constraint.settle(token.token_id, ask.parameters.max_new_tokens - asking.generated - ahead)
        settled = self._instead(logits, asking.rows[ahead], token, token_id, ask.parameters.logprobs)
        return Drawn(None) if constraint.failed else settled

    def _instead(self, logits: Any, row: int, drawn: Drawn, token_id: int, options: LogprobOptions | None) -> Drawn:
        """What was drawn, or the token that must be taken instead for the text to end as it should."""
        if token_id == drawn.token_id:
            return drawn
        if options is None:
            return Drawn(token_id, explanation=drawn.explanation)
        if options.of == "sampled":
            # Nothing else could be taken: all probability is on this token.
            return Drawn(token_id, 0.0, (TokenLogprob(token_id, 0.0),)[: options.top], drawn.explanation)
        (scored,) = self._ops.score(logits, [Score(row, token_id, options.top)])
        return Drawn(scored.token_id, scored.logprob, scored.top, drawn.explanation)


def _changes_along(asking: Asking, max_new_tokens: int) -> Changes:
    """The edits and the masks of each of its rows; none of a kind where nothing is changed in that way."""
    edits = asking.history.edits_along(asking.ahead) if asking.history is not None else ()
    if asking.constraint is None:
        return edits, ()
    return edits, _masks_along(asking.constraint, asking.ahead, max_new_tokens - asking.generated)


def _masks_along(constraint: Constraint, drafts: Sequence[int], left: int) -> Masks:
    """The masks of the next row and of those after each drafted token, where `left` tokens may still come.

    After a draft that the constraint would put another token in place of, no row can be reached: those have no mask.
    """
    masks: list[NDArray[np.uint32] | None] = [constraint.mask()]
    for ahead, token_id in enumerate(drafts):
        if constraint.settle(token_id, left - ahead) != token_id:
            break
        constraint.advance(token_id)
        masks.append(constraint.mask())
    constraint.rollback(len(masks) - 1)
    return masks + [None] * (len(drafts) + 1 - len(masks))
