"""Beam search under a constraint: candidates that could not end in time are no candidates, and all else is the same."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from model.decoding import beam_chooser
from model.decoding.beam import begin
from model.decoding.choice import Ask, Asking
from model.decoding.constraint import CompiledConstraint, Constraint, ConstraintCompiler, ConstraintSpec
from model.decoding.params import DecodingParameters, Drawn, LogprobOptions, Ranked, Ranking
from model.decoding.sampler import Sampler
from model.tokenizer import Tokenizer
from service.request import Failed, Finished
from tests.beam_driver import Asked, RandomModel, found, run
from tests.bits.laboratory import Laboratory, bits_of
from tests.bits.questions import searched
from tests.reference import beams as reference
from tests.reference.beams import Tokens
from tests.tiny_model import TinyShape, write_tiny_gguf
from tests.tiny_vocabulary import END, tiny_vocabulary
from tests.torch_chooser import TorchChooser

MOST = 6


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer(tiny_vocabulary())


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer) -> ConstraintCompiler:
    return ConstraintCompiler(tokenizer)


def is_allowed(mask: NDArray[np.uint32], token_id: int) -> bool:
    return bool(mask[token_id // 32] >> token_id % 32 & 1)


def excluded_by(compiled: CompiledConstraint) -> Any:
    """Whether a sequence's last token may not be taken, in a constraint that took the others from the beginning."""

    @cache
    def after(tokens: Tokens) -> tuple[Constraint, NDArray[np.uint32]]:
        constraint = compiled.begin(MOST)
        for token in tokens:
            constraint.advance(token)
        return constraint, constraint.mask()

    def excluded(tokens: Tokens) -> bool:
        (constraint, mask), last = after(tokens[:-1]), tokens[-1]
        return not is_allowed(mask, last) or constraint.settle(last, constraint.left) != last

    return excluded


@pytest.mark.parametrize("regex", ["[ab]*c", "(he|hello|wo)+ [0-9]{2}", "a{2,4}b?"])
@pytest.mark.parametrize("width", [2, 5])
def test_a_constrained_search_is_a_search_among_what_may_follow(
    width: int, regex: str, compiler: ConstraintCompiler, tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(beam_chooser, "MOST_EXCLUDED", 10**6)
    compiled = compiler.compile(ConstraintSpec("regex", regex))
    model = RandomModel(tokenizer.vocabulary_size, width)
    parameters = DecodingParameters(MOST, 0, beam_width=width)

    (search,) = run([Asked(model, parameters, compiled)], eos=frozenset({END}))

    expected, stopped = reference.beam_search(
        model,
        width=width,
        most=MOST,
        ends=lambda tokens: "eos" if tokens[-1] == END else None,
        excluded=excluded_by(compiled),
    )
    assert [(each.tokens, each.reason) for each in expected] == [(each.tokens, each.reason) for each in found(search)]
    assert stopped == search.stopped


@dataclass(slots=True)
class Narrow:
    """A constraint after whose every token but one nothing could end in time."""

    way_out: int
    settled: int = 0
    failed: bool = False

    def mask(self) -> NDArray[np.uint32]:
        return np.full(10, 0xFFFFFFFF, dtype=np.uint32)

    def settle(self, token_id: int, left: int) -> int:
        self.settled += 1
        return self.way_out

    def advance(self, token_id: int) -> None:
        assert token_id == self.way_out

    def fork(self) -> "Narrow":
        return Narrow(self.way_out)

    def accepts(self, drafts: Sequence[int]) -> int:
        return 0

    def rollback(self, count: int) -> None:
        assert not count


class CountingRanker(TorchChooser):
    def __init__(self) -> None:
        self.calls = 0

    def rank(self, logits: torch.Tensor, rankings: Sequence[Ranking]) -> list[tuple[Ranked, ...]]:
        self.calls += 1
        return super().rank(logits, rankings)


@pytest.mark.parametrize("rank", [0, 1, 5, 60, 319])
def test_the_one_token_that_may_follow_is_found_wherever_it_stands(rank: int) -> None:
    """After so many candidates that may not follow, however many there are, it is asked for by itself."""
    row = RandomModel(320, 1)(())
    way_out = int(np.argsort(-row, kind="stable")[rank])
    constraint, ranker = Narrow(way_out), CountingRanker()
    parameters = DecodingParameters(4, 0, beam_width=3)
    ask = Ask((Asking((0,), 0, constraint=constraint),), (), (), parameters, search=begin(parameters, None))

    (choice,) = Sampler(ranker, frozenset({END})).choose(torch.from_numpy(row[None]), [ask])

    assert ((Drawn(way_out),),) == choice.tokens
    assert choice.search is not None
    assert choice.search.live[0].logprob == pytest.approx(reference.log_softmax(row)[way_out], abs=1e-9)
    assert constraint.settled <= beam_chooser.MOST_EXCLUDED + 1
    assert ranker.calls <= 5


def test_a_constraint_that_gave_up_fails_the_search() -> None:
    row, parameters = RandomModel(320, 1)(()), DecodingParameters(4, 0, beam_width=3)
    constraint = Narrow(7, failed=True)
    ask = Ask((Asking((0,), 0, constraint=constraint),), (), (), parameters, search=begin(parameters, None))

    (choice,) = Sampler(TorchChooser(), frozenset()).choose(torch.from_numpy(row[None]), [ask])

    assert ((Drawn(None),),) == choice.tokens


SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 6}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Laboratory:
    path = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=TinyShape(), format="Q8_0")
    return Laboratory(path)


def ask_for_json(laboratory: Laboratory, limit: int, width: int, **given: Any) -> Finished | Failed:
    spec = ConstraintSpec("json_schema", json.dumps(SCHEMA))
    compiled = laboratory.model.constraints.compiled(spec, ()).fitted(limit)
    question = searched((40, 41, 42), limit, width, ignore_eos=False, logprobs=LogprobOptions(), **given)
    request = question.request(laboratory.new_id())
    (terminal,) = laboratory.run([_constrained(request, compiled, width)])
    return terminal


def _constrained(request: Any, compiled: CompiledConstraint, width: int) -> Any:
    return replace(request, constraint=compiled.renewed(), sample_count=width)


@pytest.mark.parametrize("limit", [30, 34, 40, 60])
def test_every_returned_text_conforms(limit: int, laboratory: Laboratory) -> None:
    finished = ask_for_json(laboratory, limit, 4)

    assert isinstance(finished, Finished)
    assert finished.completions
    for completion in finished.completions:
        document = json.loads(completion.text)
        assert {"name", "age"} == set(document)
        assert len(document["name"]) <= 6
        assert isinstance(document["age"], int)
    assert len({each.tokens for each in finished.completions}) == len(finished.completions)


def test_a_constrained_search_keeps_its_bits(laboratory: Laboratory, tmp_path: Path) -> None:
    first = ask_for_json(laboratory, 40, 3, length_penalty=1.0)
    laboratory.forget()

    assert bits_of(first) == bits_of(ask_for_json(laboratory, 40, 3, length_penalty=1.0))
