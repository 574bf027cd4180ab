"""The schemas of answers as the OpenAPI document has them: what a caller may rely on finding.

Knows JSON schemas and the names on the wire; knows no web framework and no values. Always: an answer may say more than
stands here, and nothing else under these names.
"""

from collections.abc import Mapping
from typing import Any, get_args

from model.decoding.beam import Stopped, TokenEnding
from service.replay import Note, Reason
from service.request import CacheReason, FinishReason

Schema = dict[str, Any]

TEXT: Schema = {"type": "string"}
COUNT: Schema = {"type": "integer", "minimum": 0}
NUMBER: Schema = {"type": "number"}
SECONDS: Schema = {"type": "number", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
ANYTHING: Schema = {}
ANY_OBJECT: Schema = {"type": "object"}
EVENTS = "text/event-stream"


def listed(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def or_null(schema: Schema) -> Schema:
    return {"anyOf": [schema, {"type": "null"}]}


def either(*values: str) -> Schema:
    return {"type": "string", "enum": list(values)}


def table(fields: Mapping[str, Schema], sometimes: Mapping[str, Schema] | None = None) -> Schema:
    """An object that has these fields, and sometimes others."""
    return {"type": "object", "required": list(fields), "properties": {**fields, **(sometimes or {})}}


_TOKEN = table({"token_id": COUNT, "text": TEXT, "bytes": listed(COUNT)})
_LIKELY = table({**_TOKEN["properties"], "logprob": or_null(NUMBER)})
_LOGPROB = table({**_LIKELY["properties"], "top": listed(_LIKELY)})
_STAGE = table({"name": TEXT, "candidates": COUNT, "mass": NUMBER, "top": listed(ANY_OBJECT)})
_EXPLAINED = table(
    {"token_id": COUNT, "text": TEXT, "entropy": NUMBER, "uniform": or_null(NUMBER), "stages": listed(_STAGE)}
)
_PIECE = {"text": TEXT, "token_ids": listed(COUNT), "logprobs": or_null(listed(_LOGPROB))}
_ENDED = {**_PIECE, "finish_reason": either(*get_args(FinishReason))}
_OF_TEXT = {"explain": listed(or_null(_EXPLAINED)), "logprob": NUMBER, "score": NUMBER}
_OF_ALL: dict[str, Schema] = {
    "id": TEXT,
    "model": TEXT,
    "prompt_logprobs": or_null(listed(or_null(_LOGPROB))),
    "usage": table(dict.fromkeys(("prompt_tokens", "generated_tokens", "cached_tokens", "resumed_tokens"), COUNT)),
    "seed": COUNT,
    "parameters": ANY_OBJECT,
    "cache": table(
        {
            **dict.fromkeys(("reused_tokens", "computed_tokens", "evicted_tokens"), COUNT),
            "first_changed_token": or_null(COUNT),
            "reason": either(*get_args(CacheReason)),
        }
    ),
    "speculation": table({"drafted_tokens": COUNT, "accepted_tokens": COUNT}),
    "timings": table(
        {**dict.fromkeys(("queue_s", "prefill_s", "decode_s"), SECONDS), "tokens_per_second": or_null(SECONDS)}
    ),
    "reproducibility": table({"level": either("bitwise", "best_effort"), "fingerprint": TEXT, "version": TEXT}),
}
_BEAM = table(
    {
        "parent": COUNT,
        "token_id": COUNT,
        "text": TEXT,
        "logprob": NUMBER,
        "ending": or_null(either(*get_args(TokenEnding))),
    }
)
_STOPPED = {"stopped": either(*get_args(Stopped))}
_SEARCHED = {**_STOPPED, "beams": listed(listed(_BEAM))}
GENERATED: Schema = {
    "anyOf": [
        table({**_OF_ALL, **_ENDED}, {**_OF_TEXT, **_SEARCHED}),
        table({**_OF_ALL, "choices": listed(table({"index": COUNT, **_ENDED}, _OF_TEXT))}, _SEARCHED),
    ]
}
TOKEN_IDS = table({"token_ids": listed(COUNT)})
DECODED = table({"text": TEXT}, {"tokens": listed(_TOKEN)})
LIVE, READY = table({"status": {"const": "live"}}), table({"status": {"const": "ready"}})
SESSION = table({"id": TEXT, "tokens": COUNT, "bytes": COUNT, "idle_s": SECONDS, "busy": FLAG, "parent": or_null(TEXT)})
SESSIONS = table({"sessions": listed(SESSION)})
LOGITS = table(
    {
        "model": TEXT,
        "context_tokens": COUNT,
        "vocabulary_size": COUNT,
        "logits": {"type": "string", "contentEncoding": "base64"},
        "top": listed(table({**_TOKEN["properties"], "logit": NUMBER})),
        "reproducibility": table({"level": either("bitwise", "best_effort"), "fingerprint": TEXT}),
    }
)
ESTIMATE = table(
    {
        "model": TEXT,
        **dict.fromkeys(("prompt_tokens", "max_generated_tokens", "cache_positions", "cache_bytes"), COUNT),
        "expected_wait_s": or_null(SECONDS),
        "status": {"type": "integer", "minimum": 200, "maximum": 599},
        "retry_after_s": or_null(COUNT),
        "error": or_null(ANY_OBJECT),
    }
)
_ABOUT: dict[str, Schema] = {
    "sha256": TEXT,
    "parameters": COUNT,
    "bytes": COUNT,
    "bits_per_weight": NUMBER,
    "recipe": or_null(TEXT),
    "report": or_null(ANY_OBJECT),
    "evaluation": or_null(ANY_OBJECT),
    "draft": or_null(ANY_OBJECT),
    "engine": ANY_OBJECT,
    "reproducibility": table({"level": either("bitwise", "best_effort"), "fingerprint": TEXT}),
}
_DIFFERENCE = table(
    {"field": TEXT, "index": or_null(COUNT), "position": or_null(COUNT), "expected": ANYTHING, "found": ANYTHING}
)
REPLAYED = table(
    {
        "equal": FLAG,
        "first_difference": or_null(_DIFFERENCE),
        "reasons": listed(either(*get_args(Reason))),
        "notes": listed(either(*get_args(Note))),
        "dropped": listed(TEXT),
        "refusal": or_null(table({"code": TEXT, "message": TEXT, "param": or_null(TEXT)})),
        "answer": or_null(GENERATED),
    }
)
_BESIDE = ("draft", "engine", "reproducibility")
_OF_MODEL = {"name": TEXT, "chat": FLAG, "config": ANY_OBJECT, "defaults": ANY_OBJECT}
INFO = table(
    {
        "name": {"const": "tane"},
        "version": TEXT,
        "model": table({**_OF_MODEL, **{name: part for name, part in _ABOUT.items() if name not in _BESIDE}}),
        **{name: _ABOUT[name] for name in _BESIDE},
        "models": listed(table({**_OF_MODEL, **_ABOUT})),
        "settings": ANY_OBJECT,
    }
)
MODEL = table({"id": TEXT, "object": {"const": "model"}, "created": COUNT, "owned_by": TEXT, **_ABOUT})
MODELS = table({"object": {"const": "list"}, "data": listed(MODEL)})
_OPENAI_USAGE = table(dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), COUNT))


def _openai(name: str, choice: Mapping[str, Schema]) -> Schema:
    ended = {"index": COUNT, **choice, "logprobs": or_null(ANY_OBJECT), "finish_reason": either("stop", "length")}
    head = {"id": TEXT, "object": {"const": name}, "created": COUNT, "model": TEXT, "system_fingerprint": TEXT}
    choices = listed(table(ended, {"logprob": NUMBER, "score": NUMBER}))
    return table({**head, "seed": COUNT, "choices": choices, "usage": _OPENAI_USAGE}, _STOPPED)


COMPLETED = _openai("text_completion", {"text": TEXT})
_MESSAGE = table({"role": {"const": "assistant"}, "content": TEXT, "refusal": {"type": "null"}})
CHATTED = _openai("chat.completion", {"message": _MESSAGE})


def answering(schema: Schema, *, status: int = 200, streams: bool = False) -> dict[str, Any]:
    """What OpenAPI says of an answer that has this form, and may also come as events."""
    content: dict[str, Any] = {"application/json": {"schema": schema}}
    if streams:
        # No type: OpenAPI 3.1 cannot describe an event, and tools hold the schema against each of them or against all.
        content[EVENTS] = {"schema": {"description": "Events, and `data: [DONE]` at their end."}}
    return {"responses": {str(status): {"content": content}}}
