"""The running state of a constrained sequence: masks, witnesses, taking back, and forks."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from model.decoding.constraint import (
    CompiledConstraint,
    Constraint,
    ConstraintCompiler,
    ConstraintError,
    ConstraintSpec,
)
from model.tokenizer import Tokenizer
from tests.constrained import allowed_ids, draws, random_ids, text_of
from tests.tiny_vocabulary import CONTROL, END, tiny_vocabulary

TOKENIZER = Tokenizer(tiny_vocabulary())
COMPILER = ConstraintCompiler(TOKENIZER)
PERSON: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer", "minimum": 0, "maximum": 150}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
SPECS = {
    "json_schema": ConstraintSpec.json_schema(PERSON),
    "regex": ConstraintSpec.regex(r"[a-z]{2,9}@[a-z]+\.(com|org)"),
    "choice": ConstraintSpec.choice(("hello", "hello world", "help", "123")),
    "grammar": ConstraintSpec.grammar('start: sum\nsum: one | sum "+" one\none: "(" sum ")" | /[0-9]{1,3}/\n'),
}


def compiled(kind: str, banned: tuple[int, ...] = ()) -> CompiledConstraint:
    return COMPILER.compile(SPECS[kind], banned)


def least(constraint: CompiledConstraint) -> int:
    """The smallest limit that is not refused."""
    for limit in range(200):
        try:
            constraint.fitting(limit)
        except ConstraintError:
            continue
        return limit
    raise AssertionError


def take(constraint: Constraint, text: str) -> None:
    for token_id in TOKENIZER.encode(text):
        assert token_id == constraint.settle(token_id, constraint.left)
        constraint.advance(token_id)


def texts(constraint: Constraint) -> set[str]:
    return {TOKENIZER.token_text(int(token_id)) for token_id in allowed_ids(constraint.mask())}


def test_a_mask_has_a_bit_for_each_token() -> None:
    mask = compiled("choice").begin(9).mask()

    assert np.dtype(np.uint32) == mask.dtype
    assert ((TOKENIZER.vocabulary_size + 31) // 32,) == mask.shape


def test_a_mask_allows_what_the_form_allows() -> None:
    assert {"1", "12", "123", "h", "he", "hell", "hello"} >= texts(compiled("choice").begin(9))


def test_a_mask_is_the_callers_own() -> None:
    constraint = compiled("regex").begin(30)
    constraint.mask().fill(0)

    assert constraint.mask().any()


def test_the_end_is_allowed_exactly_where_the_text_may_end() -> None:
    constraint = compiled("choice").begin(9)
    allowed = []
    for token_id in (None, *TOKENIZER.encode("hello world")):
        if token_id is not None:
            constraint.advance(constraint.settle(token_id, constraint.left))
        allowed.append(END in allowed_ids(constraint.mask()))

    assert [False, True, *[False] * (len(allowed) - 3), True] == allowed


def test_control_tokens_are_never_allowed() -> None:
    anything = COMPILER.compile(ConstraintSpec.regex(r"(?s).*")).begin(9)

    assert not {1, 2} & set(map(int, allowed_ids(anything.mask())))


def test_a_control_tokens_spelling_is_text_like_any_other() -> None:
    spelled = COMPILER.compile(ConstraintSpec.choice((CONTROL[0],)))

    assert CONTROL[0] == text_of(TOKENIZER, random_ids(spelled, 20, 1))


@pytest.mark.parametrize("kind", SPECS)
def test_random_texts_keep_the_form_within_every_limit(kind: str) -> None:
    constraint = compiled(kind)
    shortest = least(constraint)

    for seed in range(4):
        for limit in (shortest, shortest + 1, shortest + 7, 3 * shortest):
            ids = random_ids(constraint, limit, seed)
            assert len(ids) <= limit
            assert END in ids or len(ids) == limit
            assert is_complete(constraint, ids)


def is_complete(constraint: CompiledConstraint, ids: list[int]) -> bool:
    """Whether the whole text is one that the form allows, asked of a state of its own."""
    state = constraint.begin(len(ids) + 1)
    content = [token_id for token_id in ids if token_id != END]
    for token_id in content:
        state.advance(state.settle(token_id, state.left))
    return END in allowed_ids(state.mask())


def test_a_regular_expression_is_about_the_whole_text() -> None:
    ids = random_ids(compiled("regex"), 40, 3)

    assert re.fullmatch(r"[a-z]{2,9}@[a-z]+\.(com|org)", text_of(TOKENIZER, ids))


@pytest.mark.parametrize("kind", SPECS)
def test_a_limit_that_no_text_fits_is_refused(kind: str) -> None:
    constraint = compiled(kind)
    limit = least(constraint) - 1

    with pytest.raises(ConstraintError) as caught:
        constraint.begin(limit)

    assert ("limit_too_small", f"constraint.{kind}") == (caught.value.code, caught.value.param)
    assert str(limit) in str(caught.value)


def test_the_least_limit_of_a_choice_is_exact() -> None:
    assert 1 == least(compiled("choice"))


def test_the_least_limit_of_a_number_is_one_token() -> None:
    assert 1 == least(COMPILER.compile(ConstraintSpec.json_schema({"anyOf": [PERSON, {"type": "integer"}]})))


def test_a_long_alternative_that_is_preferred_gives_way_to_a_short_one() -> None:
    """The first walk takes the quote, which opens twenty characters."""
    schema = {"anyOf": [{"type": "string", "minLength": 20}, {"const": None}]}

    assert least(COMPILER.compile(ConstraintSpec.json_schema(schema))) <= 4


@pytest.mark.parametrize("kind", SPECS)
def test_the_same_draws_give_the_same_text(kind: str) -> None:
    constraint = compiled(kind)

    assert random_ids(constraint, 40, 5) == random_ids(compiled(kind), 40, 5) == random_ids(constraint, 40, 5)


@pytest.mark.parametrize("kind", SPECS)
def test_what_was_taken_is_taken_again(kind: str) -> None:
    """So a resumed sequence reaches the same state."""
    limit = least(compiled(kind)) + 4
    ids = random_ids(compiled(kind), limit, 6)
    state = compiled(kind).begin(limit)
    again = []
    for token_id in ids:
        again.append(state.settle(token_id, state.left))
        state.advance(again[-1])

    assert ids == again


@pytest.mark.parametrize("kind", SPECS)
def test_rolled_back_is_as_before(kind: str) -> None:
    limit = least(compiled(kind)) + 5
    constraint = compiled(kind).begin(limit)
    before = []
    taken = 0
    for token in draws(constraint, np.random.default_rng(7)):
        taken += 1
        before.append(token.taken)

    for count in (1, 2, taken):
        constraint.rollback(min(count, taken))
        rest = before[max(taken - count, 0) :]
        fresh = compiled(kind).begin(limit)
        for token_id in before[: max(taken - count, 0)]:
            fresh.advance(fresh.settle(token_id, fresh.left))
        assert fresh.mask().tolist() == constraint.mask().tolist()
        assert fresh.left == constraint.left
        for token_id in rest:
            assert token_id == constraint.settle(token_id, constraint.left)
            constraint.advance(token_id)


def test_nothing_is_rolled_back_by_none() -> None:
    constraint = compiled("regex").begin(30)
    take(constraint, "abc")

    constraint.rollback(0)

    assert 30 - len(TOKENIZER.encode("abc")) == constraint.left


@pytest.mark.parametrize("kind", SPECS)
def test_a_fork_goes_its_own_way(kind: str) -> None:
    limit = least(compiled(kind)) + 6
    constraint = compiled(kind).begin(limit)
    steps = draws(constraint, np.random.default_rng(8))
    next(steps)
    fork = constraint.fork()
    mask = constraint.mask().tolist()

    forked = [token.taken for token in draws(fork, np.random.default_rng(9))]

    assert forked
    assert mask == constraint.mask().tolist()
    assert limit - 1 == constraint.left


def test_a_draft_is_accepted_as_far_as_it_fits() -> None:
    constraint = compiled("regex").begin(30)
    drafts = TOKENIZER.encode("abc@x.com!")

    assert len(drafts) - 1 == constraint.accepts(drafts)
    assert 0 == constraint.accepts(TOKENIZER.encode("!"))
    assert 0 == constraint.accepts([])


def test_an_end_is_accepted_in_a_draft_where_the_text_may_end() -> None:
    constraint = compiled("choice").begin(9)
    help_ids = TOKENIZER.encode("help")

    assert len(help_ids) + 1 == constraint.accepts([*help_ids, END])
    assert len(help_ids) + 1 == constraint.accepts([*help_ids, END, END])
    assert 1 == constraint.accepts([help_ids[0], END])


def test_a_draft_changes_nothing() -> None:
    constraint = compiled("regex").begin(30)
    mask = constraint.mask().tolist()
    constraint.accepts(TOKENIZER.encode("abc@x"))

    assert mask == constraint.mask().tolist()


def test_a_token_that_leaves_no_way_to_end_in_time_is_replaced() -> None:
    constraint = compiled("choice").begin(1)
    (h,) = TOKENIZER.encode("h")

    assert TOKENIZER.token_text(constraint.settle(h, 1)) in ("hello", "123")


def test_a_token_that_leaves_room_is_taken_as_it_is() -> None:
    constraint = compiled("choice").begin(6)
    (h,) = TOKENIZER.encode("h")

    assert h == constraint.settle(h, 6)


def test_only_a_settled_token_may_be_taken() -> None:
    constraint = compiled("choice").begin(1)

    with pytest.raises(ValueError, match="not settled"):
        constraint.advance(TOKENIZER.encode("h")[0])


def test_banned_tokens_are_never_allowed_and_never_a_witness() -> None:
    banned = (TOKENIZER.encode("hello")[0], TOKENIZER.encode("123")[0])
    constraint = compiled("choice", banned)
    taken = {token_id for seed in range(20) for token_id in random_ids(constraint, 8, seed)}

    assert not set(banned) & taken
    assert not set(banned) & set(map(int, allowed_ids(constraint.begin(8).mask())))


def test_bans_that_leave_no_text_are_refused() -> None:
    with pytest.raises(ConstraintError) as caught:
        COMPILER.compile(ConstraintSpec.choice(("yes",)), TOKENIZER.encode("s"))

    assert ("invalid_combination", "constraint.choice") == (caught.value.code, caught.value.param)


def test_a_banned_end_is_refused() -> None:
    with pytest.raises(ConstraintError) as caught:
        compiled("regex", (END,))

    assert "invalid_combination" == caught.value.code


def test_a_text_may_end_at_its_limit_without_an_end_token() -> None:
    ids = random_ids(COMPILER.compile(ConstraintSpec.regex("[a-z]{4}")), 4, 1)

    assert 4 >= len(ids)
    assert re.fullmatch("[a-z]{4}", text_of(TOKENIZER, ids))


def test_a_text_is_no_half_character() -> None:
    smiles = COMPILER.compile(ConstraintSpec.regex("[é🌱]+"))

    for limit in (4, 5, 6, 7):
        assert set("é🌱") >= set(text_of(TOKENIZER, random_ids(smiles, limit, limit)))


def test_other_sequences_change_nothing_however_much_they_met() -> None:
    """Copies of a grammar share a lexer that has room for so many states; this one has exponentially many."""
    compiler = ConstraintCompiler(TOKENIZER, max_lexer_states=1200)
    spec = ConstraintSpec.regex("(a|b|c)*a(a|b|c){12}")
    alone = random_ids(compiler.compile(spec), 60, 0)

    shared = compiler.compile(spec)
    crowd = [random_ids(shared, 60, seed) for seed in (1, 2, 3, 4, 5, 6, 7, 8, 0)]

    assert alone == crowd[-1]


def crowded(limit: int) -> Constraint:
    """Each letter is one more state, and there is no room for so many."""
    return ConstraintCompiler(TOKENIZER, max_lexer_states=100).compile(ConstraintSpec.regex("a{0,500}b")).begin(limit)


def test_a_text_ends_and_conforms_though_its_grammar_gives_up() -> None:
    constraint = crowded(400)
    (a,) = TOKENIZER.encode("a")
    ids = []
    while constraint.left and not constraint.ended:
        allowed = allowed_ids(constraint.mask())
        ids.append(constraint.settle(a if a in allowed else int(allowed[0]), constraint.left))
        constraint.advance(ids[-1])
        assert not constraint.failed

    assert END == ids[-1]
    assert len(ids) < 400
    assert re.fullmatch("a{0,500}b", text_of(TOKENIZER, ids[:-1]))


def test_a_grammar_that_gave_up_is_back_before_the_token_where_it_did() -> None:
    constraint = crowded(400)
    (a,) = TOKENIZER.encode("a")
    masks = []
    while a in allowed_ids(constraint.mask()):
        masks.append(constraint.mask().tolist())
        constraint.advance(constraint.settle(a, constraint.left))
    constraint.advance(constraint.settle(a, constraint.left))

    constraint.rollback(3)

    assert masks[-2] == constraint.mask().tolist()


def test_a_choice_is_spelled_as_the_tokenizer_spells_it() -> None:
    texts = ("hello world", "help", "123")
    chosen = COMPILER.compile(ConstraintSpec.choice(texts))
    spelled = {tuple(TOKENIZER.encode(text)) for text in texts}

    assert spelled == {tuple(i for i in random_ids(chosen, 20, seed) if i != END) for seed in range(20)}


def test_a_choice_that_needs_another_spelling_to_fit_gets_it() -> None:
    """The tokenizer knows no rule that makes the last token."""
    vocabulary = tiny_vocabulary(user_defined=("abcde",))
    tokenizer = Tokenizer(replace(vocabulary, user_defined_token_ids=frozenset()))

    ids = random_ids(ConstraintCompiler(tokenizer).compile(ConstraintSpec.choice(("abcde",))), 1, 0)

    assert [tokenizer.vocabulary_size - 1] == ids


def test_certain_text_is_spelled_usually_by_a_vocabulary_that_lacks_some_bytes() -> None:
    vocabulary = tiny_vocabulary()
    lacking = {"Ä", "Ć"}
    tokenizer = Tokenizer(replace(vocabulary, tokens=tuple(t for t in vocabulary.tokens if t not in lacking)))
    certain = ConstraintCompiler(tokenizer).compile(ConstraintSpec.regex("hello world[0-9]"))

    for seed in range(5):
        ids = random_ids(certain, 20, seed)
        assert tokenizer.encode("hello world") == ids[: len(tokenizer.encode("hello world"))]


def test_a_vocabulary_that_cannot_spell_every_byte_is_used_without_its_encoder() -> None:
    vocabulary = tiny_vocabulary(merges=())
    tokens = tuple(token for token in vocabulary.tokens if token != "z")
    smaller = Tokenizer(replace(vocabulary, tokens=tokens, user_defined_token_ids=frozenset()))

    ids = random_ids(ConstraintCompiler(smaller).compile(ConstraintSpec.choice(("zoo", "ape"))), 9, 0)

    assert "ape" == b"".join(map(smaller.token_bytes, ids)).decode()
