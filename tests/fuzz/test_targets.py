"""A few thousand inputs of each target, the same each time; `python -m tests.fuzz` tries more."""

from itertools import islice

import pytest

from tests.fuzz.mutations import mutations
from tests.fuzz.target import bounded
from tests.fuzz.targets import TARGETS

COUNTS = {"gguf": 400, "json": 2000, "grammar": 40, "stop": 2000}


@pytest.mark.slow
@pytest.mark.parametrize("name", TARGETS)
def test_only_named_errors_come_out(name: str) -> None:
    target = TARGETS[name]()
    run = bounded(target.make())
    for data in islice(mutations(target, seed=0), COUNTS[name]):
        run(data)


def test_the_inputs_are_the_same_each_time() -> None:
    target = TARGETS["stop"]()

    assert list(islice(mutations(target, 1), 9)) == list(islice(mutations(target, 1), 9))


def test_a_fault_is_not_let_pass() -> None:
    def at_fault(data: bytes) -> None:
        raise KeyError(data)

    with pytest.raises(KeyError):
        bounded(at_fault)(b"")
