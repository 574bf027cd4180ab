"""From a record to the request that runs it again, and from the new answer to what is said about the two.

Knows the schema and the models' limits; runs nothing. Always: the replayed request differs from the recorded one in
`service.replay.NOT_REPLAYED` alone, and says which of these fields the record gave; a model's name is kept where it
is the one that runs.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from service import __version__
from service.context import Serving
from service.domain import Asked, read_generate
from service.errors import InvalidField
from service.json_body import MAX_DEPTH
from service.replay import NOT_REPLAYED, Maker, Verdict, answers_another, is_same_maker, judge, maker_of, refused
from service.replay_difference import Answer, choices_of
from service.replay_schemas import ReplayOfOne, ReplayRequest
from service.responses import fingerprint
from service.schemas import GenerateRequest, read

RECORD_DEPTH = MAX_DEPTH + 2
"""What a record holds may itself be as deep as a body, and stands two levels down in it."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A record that can be run, or that this model refuses."""

    recorded: Answer
    dropped: tuple[str, ...]
    """Fields that the recorded request gave and that are not replayed."""
    maker: Maker
    contradictory: bool
    """Whether the recorded answer is one to another request."""
    asked: Asked | None
    refusal: InvalidField | None = None

    def result(self, answer: Answer) -> dict[str, Any]:
        """What `POST /replay` answers once the new answer is there."""
        return self._json(judge(self.recorded, answer, contradictory=self.contradictory), answer, None)

    def refused(self) -> dict[str, Any]:
        """What `POST /replay` answers to a record that is not run."""
        error = self.refusal
        assert error is not None, "only a refused record is not run"
        refusal = {"code": error.code, "message": error.message, "param": error.param}
        verdict = refused(self.recorded, self.maker, contradictory=self.contradictory)
        return self._json(verdict, None, refusal)

    def _json(self, verdict: Verdict, answer: Answer | None, refusal: Mapping[str, Any] | None) -> dict[str, Any]:
        return {**asdict(verdict), "dropped": self.dropped, "refusal": refusal, "answer": answer}


@dataclass(frozen=True, slots=True)
class Record:
    """A checked record. `asked_for` is the model that is to run it, and None leaves that to whoever answered."""

    request: GenerateRequest
    answer: Answer
    asked_for: str | None


def read_record(value: Any) -> Record:
    """Raises InvalidField for what is no record; the field is named as it stands in the record."""
    answer = value.get("answer") if isinstance(value, Mapping) else None
    has_choices = isinstance(answer, Mapping) and answer.get("choices") is not None
    body = read(ReplayRequest if has_choices else ReplayOfOne, value)
    # A seed may be written as 7.0, which is the same number and no seed.
    recorded: Answer = value["answer"] | {"seed": body.answer.seed}
    if body.request.seed not in (None, recorded["seed"]):
        raise InvalidField(
            "request.seed is not the seed of the answer",
            code="invalid_combination",
            param="request.seed",
            allowed={"const": recorded["seed"]},
        )
    for index, choice in enumerate(choices_of(recorded)):
        for name in ("logprobs", "explain"):
            if choice.get(name) is not None and len(choice[name]) != len(choice["token_ids"]):
                place = f"answer.choices.{index}.{name}" if has_choices else f"answer.{name}"
                message = f"{place} must have one entry for each token"
                raise InvalidField(message, code="invalid_combination", param=place)
    return Record(body.request, recorded, body.model)


def replay_with(record: Record, serving: Serving, request_id: str, key_id: str | None = None) -> Replay:
    """The record's request as this model takes it.

    Raises InvalidField for a request that the recorded model itself, at this version, would not have answered.
    """
    recorded, body = record.answer, record.request
    kept = {"model"} if body.model == serving.model.name else set()
    changed = {name: value for name, value in NOT_REPLAYED.items() if getattr(body, name) != value and name not in kept}
    body = body.model_copy(update={**changed, "seed": recorded["seed"]})
    info = serving.engine_info
    makers = {
        constrained: Maker(
            serving.model.name, fingerprint(info, constrained=constrained), __version__, info.reproducibility_level
        )
        for constrained in (False, True)
    }
    maker = makers[body.constraint is not None]
    contradictory = answers_another(recorded.get("parameters") or {}, _given(body))
    try:
        with within("request"):
            asked = read_generate(body, serving.model, info.context_length, request_id, key_id=key_id)
    except InvalidField as error:
        if any(is_same_maker(maker_of(recorded), each) for each in makers.values()):
            raise
        return Replay(recorded, tuple(changed), maker, contradictory, None, error)
    return Replay(recorded, tuple(changed), maker, contradictory, asked)


def _given(body: GenerateRequest) -> Mapping[str, Any]:
    """The values that the recorded request gave; null asks for what would be without it."""
    given = body.model_dump(include=body.model_fields_set)
    return {name: value for name, value in given.items() if value is not None}


@contextmanager
def within(part: str) -> Iterator[None]:
    """Name the fields of errors as they stand in the record."""
    try:
        yield
    except InvalidField as error:
        raise InvalidField(
            error.message,
            code=error.code,
            param=f"{part}.{error.param}" if error.param else part,
            allowed=error.allowed,
        ) from error
