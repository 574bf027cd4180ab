"""A few inputs for each operation, the same each time; `python -m tests.contract` tries every phase for longer."""

import pytest

from tests.contract.__main__ import judge

FEW = ("--phases", "fuzzing", "--max-examples", "4", "--seed", "1", "--generation-deterministic", "--workers", "2")


@pytest.mark.slow
def test_the_document_says_what_the_server_does() -> None:
    assert 0 == judge(FEW)
