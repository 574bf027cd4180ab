"""Whether the tokens that an answer is resumed after may be the beginning of one, and whether they end it.

Knows fields, ids and where texts end; runs no model. Always: what cannot go on exactly is refused by name, so whoever
asked can ask for the whole answer again.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from model.decoding.choice import Constraint
from model.decoding.transcript import Transcript
from service.context import ServedModel
from service.errors import InvalidField
from service.request import GenerationRequest
from service.schemas import GenerateRequest

FIELD = "resume.token_ids"


def check_resume_fields(body: GenerateRequest, *, draws: bool) -> None:
    """Raises InvalidField for the first field that clashes with `resume`. `draws`: the temperature is above 0."""
    if body.resume is None:
        return
    for is_clash, field, message, allowed in _clashes(body, draws):
        if is_clash:
            raise InvalidField(f"{field} {message}", code="invalid_combination", param=field, allowed=allowed)


def _clashes(body: GenerateRequest, draws: bool) -> Iterator[tuple[bool, str, str, Mapping[str, Any]]]:
    yield body.beam_width > 1, "beam_width", "must be 1 with resume: a search cannot go on from one text", {"enum": [1]}
    yield body.num_return > 1, "num_return", "must be 1 with resume: one text goes on", {"enum": [1]}
    yield (
        draws and body.seed is None,
        "seed",
        "is needed with resume above temperature 0: it is the one that the answer was begun with",
        {"type": "integer", "minimum": 0},
    )


def resumed(request: GenerationRequest, model: ServedModel) -> GenerationRequest:
    """The same request, with where its resumed tokens lead. Raises InvalidField where they cannot begin an answer."""
    ids, parameters = request.resumed_ids, request.parameters
    if not ids:
        return request
    if len(ids) > parameters.max_new_tokens:
        raise InvalidField(
            f"{FIELD} has {len(ids)} tokens, and max_new_tokens is {parameters.max_new_tokens}",
            code="too_long",
            param=FIELD,
            allowed={"max_items": parameters.max_new_tokens},
        )
    form = _form_after(request)
    return replace(request, resumed_ends=_ends(request, model), resumed_form=form)


def _ends(request: GenerationRequest, model: ServedModel) -> bool:
    """Whether the resumed tokens are the whole answer. Raises InvalidField for tokens after its end."""
    ids, parameters = request.resumed_ids, request.parameters
    text = Transcript(model.tokenizer, stop=parameters.stop, min_new_tokens=parameters.min_new_tokens)
    ending = frozenset(parameters.stop_token_ids)
    if not parameters.ignore_eos:
        ending |= model.tokenizer.eos_token_ids
    for index, token_id in enumerate(ids, start=1):
        ends = text.push(token_id, hidden=token_id in ending) or token_id in ending
        if ends and index < len(ids):
            raise InvalidField(
                f"{FIELD}.{index} comes after the end of the answer",
                code="invalid_combination",
                param=f"{FIELD}.{index}",
            )
        if ends:
            return True
    return len(ids) == parameters.max_new_tokens


def _form_after(request: GenerationRequest) -> Constraint | None:
    """Where the resumed tokens leave the constraint. Raises InvalidField for the first that it would not let come."""
    if request.constraint is None:
        return None
    state = request.constraint.renewed().begin(request.parameters.max_new_tokens)
    for index, token_id in enumerate(request.resumed_ids):
        if state.ended or state.settle(token_id, state.left) != token_id:
            raise InvalidField(
                f"{FIELD}.{index} does not keep the form of the constraint",
                code="invalid_combination",
                param=f"{FIELD}.{index}",
            )
        state.advance(token_id)
    return state
