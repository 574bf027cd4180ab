"""What a record must hold: a request that `POST /generate` takes, and of its answer what is compared.

Knows the wire and nothing of tokens. Always: the request is judged as any other; of the answer, fields that are not
named here are let pass, since a newer server may say more.
"""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from model.decoding.beam import TokenEnding
from service.schemas import MAX_SEED, Body, GenerateRequest, Items, ModelField, TokenId


class Recorded(Body):
    """A part of an answer, of which other fields do not matter."""

    model_config = ConfigDict(extra="ignore")


class RecordedRival(Recorded):
    """A token that might have been chosen."""

    token_id: TokenId = Field(description="Which token.")
    logprob: float = Field(description="Its log-probability.")


class RecordedToken(RecordedRival):
    """A token with its log-probability, and the likeliest tokens with theirs."""

    top: Items[RecordedRival] = Field((), description="The likeliest tokens.")


class RecordedLikely(Recorded):
    """A token that a stage of a choice left."""

    token_id: TokenId = Field(description="Which token.")
    probability: float = Field(description="Its probability.")


class RecordedStage(Recorded):
    """What a stage of a choice left."""

    name: str = Field(description="Which stage.")
    candidates: int = Field(ge=0, description="How many candidates it left.")
    mass: float = Field(description="Their share of the probability before it.")
    top: Items[RecordedLikely] = Field(description="The likeliest of them.")


class RecordedExplanation(Recorded):
    """How a token was chosen."""

    token_id: TokenId = Field(description="Which token.")
    entropy: float = Field(description="The entropy of the model's distribution.")
    uniform: float | None = Field(None, description="The number that was drawn.")
    stages: Items[RecordedStage] = Field(description="What each stage left.")


class RecordedText(Recorded):
    """One text of an answer."""

    text: str = Field(description="The text.")
    token_ids: Items[TokenId] = Field(description="The generated ids.")
    finish_reason: Literal["eos", "stop", "length", "deadline"] = Field(description="Why the text ended.")
    logprobs: Items[RecordedToken] | None = Field(None, description="Log-probabilities, one entry for each token.")
    explain: Items[RecordedExplanation | None] | None = Field(
        None, description="Explanations, one entry for each token."
    )
    logprob: float | None = Field(None, description="The log-probability of a beam.")
    score: float | None = Field(None, description="The score of a beam.")


class RecordedBeam(Recorded):
    """A beam after a step of a search."""

    parent: int = Field(ge=0, description="Which beam of the step before it continues.")
    token_id: TokenId = Field(description="The token that it took.")
    logprob: float = Field(description="The sum over its tokens.")
    ending: TokenEnding | None = Field(None, description="How it ended in this step.")


class RecordedUsage(Recorded):
    """What is compared of the usage."""

    generated_tokens: int = Field(ge=0, description="Generated tokens over all texts.")
    resumed_tokens: int = Field(0, ge=0, description="Tokens that the answer was resumed after.")


class RecordedReproducibility(Recorded):
    """What made the answer, and what it promised."""

    level: Literal["bitwise", "best_effort"] = Field(description="Whether the same bits were promised.")
    fingerprint: str = Field(description="The engine's fingerprint.")
    version: str | None = Field(None, description="The version of the library.")


class RecordedAnswer(Recorded):
    """An answer of `POST /generate`: one text at the top, or several in `choices`."""

    model: str = Field(description="The served name.")
    choices: Items[RecordedText] | None = Field(None, min_length=1, description="The texts, where there are several.")
    prompt_logprobs: Items[RecordedToken | None] | None = Field(None, description="Log-probabilities of the prompt.")
    usage: RecordedUsage = Field(description="Counted tokens.")
    seed: int = Field(ge=0, le=MAX_SEED, description="The seed that was used.")
    parameters: dict[str, Any] | None = Field(None, description="The effective parameters.")
    reproducibility: RecordedReproducibility = Field(description="What made the answer.")
    stopped: str | None = Field(None, description="Why a beam search ended.")
    beams: Items[Items[RecordedBeam]] | None = Field(None, description="Each step of a beam search.")


class RecordedSingle(RecordedAnswer, RecordedText):
    """An answer with its one text at the top."""


class ReplayRequest(ModelField):
    """The body of `POST /replay`: a record, and which model is to run it."""

    model: str | None = Field(
        None,
        description="A served name.",
        json_schema_extra={"x-default": "the model that answered, where it is served, else the main model"},
    )
    request: GenerateRequest = Field(
        description="The body of `POST /generate` as it was sent, with the seed that was used."
    )
    answer: RecordedAnswer = Field(description="The whole answer.")


class ReplayOfOne(ReplayRequest):
    """A record whose answer has its one text at the top."""

    answer: RecordedSingle = Field(description="The whole answer.")
