"""What callers of each route that generates are told: the same question in every route's words, whole and in pieces."""

import json
from dataclasses import dataclass
from typing import Any

from tests.live import Live

ROUTES = ("/generate", "/v1/completions", "/v1/chat/completions")
PROMPT = "Über den Gärten liegt Schnee. "
Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Told:
    """Whole texts by index, and pieces with their index in their order."""

    texts: dict[int, str]
    pieces: list[tuple[int, str]]

    def joined(self) -> dict[int, str]:
        return {index: "".join(text for of, text in self.pieces if of == index) for index in self.texts}


def body_for(route: str, *, count: int = 1, **fields: Any) -> Fields:
    """A question that has many answers, in the words of the route."""
    body: Fields = {"max_new_tokens": 80, "seed": 5, "temperature": 2.0, "top_p": 1.0, "top_k": 0, **fields}
    prompt: Fields = {"messages": [{"role": "user", "content": PROMPT}]} if "chat" in route else {"prompt": PROMPT}
    return {**body, **prompt, ("num_return" if route == "/generate" else "n"): count}


def answer_of(live: Live, route: str, **fields: Any) -> Fields:
    with live.client() as client:
        response = client.post(route, json=body_for(route, **fields))
    assert 200 == response.status_code, response.text
    answer: Fields = response.json()
    return answer


def events_of(live: Live, route: str, **fields: Any) -> list[Fields]:
    """The JSON events of a stream, which must end with `[DONE]`."""
    body = body_for(route, stream=True, **fields)
    with live.client() as client, client.stream("POST", route, json=body) as response:
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: ")]
    assert "[DONE]" == lines[-1]
    return [json.loads(line) for line in lines[:-1]]


def choices_of(answer: Fields) -> list[Fields]:
    """The choices of an answer or of an event."""
    return answer.get("choices") or [{"index": 0, **answer}]


def text_of(choice: Fields) -> str:
    """The text of a choice, whole or a piece."""
    said = choice.get("message") or choice.get("delta") or choice
    return said.get("text") or said.get("content") or ""


def pieces_of(route: str, events: list[Fields]) -> list[Fields]:
    """The choices that hold pieces: the last event of `/generate` is the whole answer."""
    return [choice for event in (events[:-1] if route == "/generate" else events) for choice in choices_of(event)]


def told(live: Live, route: str, **fields: Any) -> Told:
    whole = {choice["index"]: text_of(choice) for choice in choices_of(answer_of(live, route, **fields))}
    pieces = pieces_of(route, events_of(live, route, **fields))
    return Told(whole, [(choice["index"], text_of(choice)) for choice in pieces])
