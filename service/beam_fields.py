"""Which fields of a request fit beam search, and which would be ignored by it or without it.

Always: a field that would change nothing is refused by name when its value asks for a change; one whose value asks for
none passes.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from service.errors import InvalidField
from service.schemas import GenerateRequest

Clash = tuple[bool, str, str, Mapping[str, Any]]
"""Whether it is one, the field, what is wrong, and what is allowed."""


def check_beam_fields(body: GenerateRequest) -> None:
    """Raises InvalidField for the first field that clashes with `beam_width`."""
    clashes = _with_beams(body) if body.beam_width > 1 else _without_beams(body)
    for is_clash, field, message, allowed in clashes:
        if is_clash:
            raise InvalidField(f"{field} {message}", code="invalid_combination", param=field, allowed=allowed)


def _without_beams(body: GenerateRequest) -> Iterator[Clash]:
    yield (
        body.length_penalty != 0,
        "length_penalty",
        "needs beams: give a beam_width above 1",
        {"enum": [0]},
    )


def _with_beams(body: GenerateRequest) -> Iterator[Clash]:
    drawn = "with beam_width above 1: a beam search draws nothing"
    of = None if body.logprobs is None else body.logprobs.of
    yield body.temperature not in (None, 0, 1), "temperature", f"must be 0 or 1 {drawn}", {"enum": [0, 1]}
    yield bool(body.top_k), "top_k", f"must be 0 {drawn}", {"enum": [0]}
    yield body.top_p not in (None, 1), "top_p", f"must be 1 {drawn}", {"enum": [1]}
    yield bool(body.min_p), "min_p", f"must be 0 {drawn}", {"enum": [0]}
    yield (
        body.num_return > body.beam_width,
        "num_return",
        f"is above beam_width, which is {body.beam_width}",
        {"minimum": 1, "maximum": body.beam_width},
    )
    yield of == "sampled", "logprobs.of", f"must be model {drawn}", {"enum": ["model"]}
    yield (
        body.speculation in ("prompt_lookup", "draft"),
        "speculation",
        f"{body.speculation} is not available with beam_width above 1",
        {"enum": ["off", "auto"]},
    )
