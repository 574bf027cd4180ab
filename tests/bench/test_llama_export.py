"""Two servers are compared token by token, each place after the same text, and where they part the gap is told."""

import json
from collections.abc import Sequence

import httpx
import pytest

from tests.bench.llama_export import END, Ask, Comparison, Difference, Token, compare, figures_of, llama, table, tane

PROMPT = [7, 8]


def writes(texts: dict[tuple[int, ...], list[int]], *, logprob: float = -1.0) -> Ask:
    """A server that continues what was generated so far as the table says; token t + 1 is 0.25 less likely than t."""

    def ask(ids: Sequence[int], most: int) -> list[Token]:
        assert ids[:2] == PROMPT
        tokens = texts[tuple(ids[2:])][:most]
        return [Token(each, logprob, {each: logprob, each + 1: logprob - 0.25}) for each in tokens]

    return ask


def test_the_same_text_has_no_differences() -> None:
    both = writes({(): [1, 2, 3]})

    assert Comparison(3, (), (0.0, 0.0, 0.0)) == compare(PROMPT, both, both, 3)


def test_after_a_difference_both_go_on_from_the_first_ones_token() -> None:
    ours = writes({(): [1, 2, 3, 4], (1, 2): [3, 4]})
    theirs = writes({(): [1, 3, 9, 9], (1, 2): [3, 4]})

    assert Comparison(4, (Difference(1, 0.25, None),), (0.0,) * 3) == compare(PROMPT, ours, theirs, 4)


def test_an_end_ends_the_comparison() -> None:
    both = writes({(): [1, END]})

    assert 2 == compare(PROMPT, both, both, 10).tokens


def test_an_end_is_a_token_that_can_differ() -> None:
    ours = writes({(): [1, 2, 3], (1, 2): [3]})
    theirs = writes({(): [1, END], (1, 2): [3]})

    assert [1] == [each.place for each in compare(PROMPT, ours, theirs, 3).differences]


def test_how_far_log_probabilities_are_apart_is_kept() -> None:
    ours, theirs = writes({(): [1]}, logprob=-1.0), writes({(): [1]}, logprob=-1.5)

    assert (0.5,) == compare(PROMPT, ours, theirs, 1).moved


def answering(body: object) -> httpx.Client:
    return httpx.Client(transport=httpx.MockTransport(lambda request: httpx.Response(200, text=json.dumps(body))))


def test_what_tane_says_is_read() -> None:
    top = [{"token_id": 5, "logprob": -0.1}, {"token_id": 2, "logprob": -0.3}]
    body = {"logprobs": [{"token_id": 5, "logprob": -0.1, "top": top}, {"token_id": 2, "logprob": -0.3, "top": top}]}

    found = tane(answering(body), "http://x", {2})(PROMPT, 4)

    assert [Token(5, -0.1, {5: -0.1, END: -0.3}), Token(END, -0.3, {5: -0.1, END: -0.3})] == found


@pytest.mark.parametrize(("reason", "last"), [("stop", [Token(END, None)]), ("length", [])])
def test_what_llama_cpp_says_is_read(reason: str, last: list[Token]) -> None:
    top = [{"id": 5, "logprob": -0.1}, {"id": 2, "logprob": -0.3}]
    content = [{"id": 5, "logprob": -0.1, "top_logprobs": top}]
    body = {"choices": [{"finish_reason": reason, "logprobs": {"content": content}}]}

    found = llama(answering(body), "http://x", {2})(PROMPT, 4)

    assert [Token(5, -0.1, {5: -0.1, END: -0.3}), *last] == found


def test_the_table_tells_the_gaps() -> None:
    comparisons = [
        Comparison(64, (), (0.01,) * 64),
        Comparison(64, tuple(Difference(3, gap, None) for gap in (0.0123, 0.1, 0.03, None)), (0.03,) * 60),
    ]
    figures = {"formats": [figures_of("Q4_1", comparisons)], "new_tokens": 64, "command": "command"}

    assert "| Q4_1 | 1 of 2 | 124 of 128 | 0.030, 0.100; 1 not among 20 | 0.020, 0.030 |" in table(figures)
