"""Fields that name token ids, or are bounded by how many tokens there will be."""

import pytest

from tests.fake_runtime import TOKENIZER
from tests.service.test_generate_fields import BASE, ask, error_of, request_of


@pytest.mark.parametrize("name", ["259", "-1", "01", "+1", " 1", "1.0", "x", "", "١", "9" * 5000])
def test_a_bias_of_what_is_no_token_id_is_refused(name: str) -> None:
    error = error_of({**BASE, "logit_bias": {name: 1.0}})

    assert (422, "out_of_range", "logit_bias") == (error.status, error.code, error.param)


def test_explanations_are_of_so_many_tokens_at_most() -> None:
    most = {**BASE, "explain": True, "max_new_tokens": 1024, "num_return": 4}
    assert ask(most, 2048).request.parameters.explain

    error = error_of({**most, "max_new_tokens": 1025}, 2048)

    assert ("invalid_combination", "explain") == (error.code, error.param)


def test_bans_must_leave_a_token_that_goes_on() -> None:
    most = TOKENIZER.vocabulary_size - 1
    assert request_of({**BASE, "banned_token_ids": list(range(most))})

    error = error_of({**BASE, "banned_token_ids": list(range(most)), "stop_token_ids": [most]})

    assert ("invalid_combination", "banned_token_ids") == (error.code, error.param)
