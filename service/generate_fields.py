"""The fields of `POST /generate` as a client's type checker sees them.

Knows names and types; the server knows ranges. Always: every field that the server takes is here, with its wire name.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict


class GenerateFields(TypedDict, total=False):
    """The fields of `POST /generate`; what is left out takes the server's default."""

    prompt: str
    prompt_tokens: Sequence[int]
    messages: Sequence[Mapping[str, str]]
    model: str
    max_new_tokens: int
    min_new_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    beam_width: int
    length_penalty: float
    num_return: int
    seed: int
    repetition_penalty: float
    penalty_scope: Literal["generated", "all"]
    presence_penalty: float
    frequency_penalty: float
    stop: Sequence[str]
    stop_token_ids: Sequence[int]
    ignore_eos: bool
    logit_bias: Mapping[str, float]
    banned_token_ids: Sequence[int]
    logprobs: Mapping[str, Any]
    constraint: Mapping[str, Any]
    session_id: str
    use_cache: bool
    speculation: Literal["off", "prompt_lookup", "draft", "auto"]
    deadline_ms: int
    resume: Mapping[str, Sequence[int]]
    explain: bool
