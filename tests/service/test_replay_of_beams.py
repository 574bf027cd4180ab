"""Records of beam searches: their steps are compared, and what a deadline cut is no difference."""

from typing import Any

import pytest

from service.replay import judge
from service.replay_difference import Difference, first_difference
from tests.service.test_replay import Edit, answer, changed, text_of


def searched() -> dict[str, Any]:
    steps = [[beam(0, 1, -0.5, None), beam(1, 2, -0.0, "eos")], [beam(1, 2, -0.0, "eos")]]
    return answer(text_of(1, index=0), text_of(2, index=1)) | {"stopped": "bound", "beams": steps}


def beam(parent: int, token_id: int, logprob: float, ending: str | None) -> dict[str, Any]:
    return {"parent": parent, "token_id": token_id, "text": "t", "logprob": logprob, "ending": ending}


SEARCHED: dict[str, tuple[Edit, int, Any, Any]] = {
    "where a beam came from": (
        lambda a: a["beams"][0][1].update(parent=0),
        0,
        {"parent": 1, "token_id": 2, "logprob": -0.0, "ending": "eos"},
        {"parent": 0, "token_id": 2, "logprob": -0.0, "ending": "eos"},
    ),
    "the sign of a sum": (
        lambda a: a["beams"][1][0].update(logprob=0.0),
        1,
        {"parent": 1, "token_id": 2, "logprob": -0.0, "ending": "eos"},
        {"parent": 1, "token_id": 2, "logprob": 0.0, "ending": "eos"},
    ),
    "a step too few": (
        lambda a: a["beams"].pop(),
        1,
        {"parent": 1, "token_id": 2, "logprob": -0.0, "ending": "eos"},
        None,
    ),
}


@pytest.mark.parametrize("name", SEARCHED)
def test_the_steps_of_a_search_are_compared(name: str) -> None:
    edit, position, expected, found = SEARCHED[name]

    difference = first_difference(searched(), changed(edit, searched()))

    assert repr(Difference("beams", None, position, expected, found)) == repr(difference)


@pytest.mark.parametrize("edit", [lambda a: a.pop("beams"), lambda a: a["beams"][0][0].update(text="x")])
def test_steps_are_compared_where_they_were_recorded_and_by_their_ids(edit: Edit) -> None:
    recorded = changed(edit, searched())

    assert None is first_difference(recorded, searched())


def found_later() -> dict[str, Any]:
    """What the search finds that gets further: another text is the best."""
    return searched() | {"choices": [text_of(3, index=0), text_of(2, index=1)]}


def test_of_a_search_that_a_deadline_cut_the_steps_are_compared() -> None:
    recorded = searched() | {"stopped": "deadline", "beams": searched()["beams"][:1]}

    verdict = judge(recorded, found_later())

    assert (True, ("cut_by_deadline",)) == (verdict.equal, verdict.notes)


def test_a_step_before_the_cut_is_compared() -> None:
    recorded = changed(lambda a: a["beams"][0][0].update(token_id=4), searched() | {"stopped": "deadline"})

    assert ("unexplained",) == judge(recorded, found_later()).reasons


def test_the_cut_explains_no_other_log_probability_of_the_prompt() -> None:
    recorded = searched() | {"stopped": "deadline"}
    recorded = changed(lambda a: a["prompt_logprobs"][1].update(logprob=-9.0), recorded)

    assert ("unexplained",) == judge(recorded, found_later()).reasons


def test_the_cut_explains_other_texts_where_no_steps_were_recorded() -> None:
    recorded = changed(lambda a: a.pop("beams"), searched() | {"stopped": "deadline"})

    assert ("cut_by_deadline",) == judge(recorded, found_later()).reasons
