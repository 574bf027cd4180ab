"""Histories: which tokens bias and penalties touch, and how often each was generated."""

from typing import Any

from model.decoding.history import History, history_of
from model.decoding.params import DecodingParameters, LogitEdits, Penalties

EOS = 2
EXEMPT = frozenset({EOS, 7})
PROMPT = (5, 5, 7, 9)


def history(*tokens: int, bias: tuple[tuple[int, float], ...] = (), **penalties: Any) -> History:
    parameters = DecodingParameters(max_new_tokens=9, seed=0, logit_bias=bias, penalties=Penalties(**penalties))
    made = history_of(parameters, PROMPT, EXEMPT)
    assert made is not None
    for token_id in tokens:
        made.push(token_id)
    return made


def counts(edits: LogitEdits) -> dict[int, int]:
    return dict(zip(edits.seen_ids.tolist(), edits.seen_counts.tolist(), strict=True))


def test_without_bias_and_penalties_there_is_nothing_to_keep() -> None:
    parameters = DecodingParameters(max_new_tokens=9, seed=0, penalties=Penalties(scope="all"))

    assert None is history_of(parameters, PROMPT, EXEMPT)


def test_generated_tokens_are_counted() -> None:
    assert {4: 2, 6: 1} == counts(history(4, 6, 4, frequency=0.5).edits())


def test_the_prompt_is_seen_by_repetition_only_where_its_scope_is_all() -> None:
    assert {4: 1} == counts(history(4, repetition=1.5).edits())
    assert {5: 0, 9: 0, 4: 1} == counts(history(4, repetition=1.5, scope="all").edits())


def test_presence_and_frequency_never_see_the_prompt() -> None:
    assert {} == counts(history(presence=1.0, frequency=1.0, scope="all").edits())


def test_control_and_eos_tokens_are_exempt() -> None:
    assert {4: 1} == counts(history(EOS, 7, 4, presence=1.0).edits())


def test_bias_stands_beside_the_penalties() -> None:
    edits = history(bias=((1, 2.5), (EOS, -100.0))).edits()

    assert ([1, EOS], [2.5, -100.0]) == (edits.bias_ids.tolist(), edits.bias_values.tolist())


def test_a_fork_goes_its_own_way() -> None:
    first = history(4, presence=1.0)
    second = first.fork()
    first.push(5)
    second.push(6)

    assert ({4: 1, 5: 1}, {4: 1, 6: 1}) == (counts(first.edits()), counts(second.edits()))


def test_each_drafted_token_is_seen_by_the_rows_after_it() -> None:
    made = history(4, frequency=1.0)

    along = [counts(each) for each in made.edits_along((4, 8))]

    assert [{4: 1}, {4: 2}, {4: 2, 8: 1}] == along
    assert {4: 1} == counts(made.edits())
