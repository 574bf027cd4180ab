"""Callers of every kind, well-meaning and not: what they send, and what is wrong with what they get.

Always: what a caller sends depends on its seed and on what it was answered; each has a key and a connection of its own.
"""

import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import httpx

from service.constraints import MAX_ENTRIES
from tests.hostile.inputs import Hostile, every_input
from tests.hostile.wire import talk

WORDS = [
    "The",
    "seed",
    "lies",
    "in",
    "the",
    "ground",
    "and",
    "waits",
    "for",
    "rain,",
    "then",
    "the",
    "first",
    "leaf",
    "finds",
    "light;",
    "whoever",
    "sows",
    "it",
    "again",
]
SESSIONS = 12
"""Names of sessions that a caller uses, and forks into."""
LONGEST_PROMPT, LONGEST_TEXT = 160, 40
MOST_TRANSCRIPT = 1200
TIMEOUT_S = 120.0
LONG_TEXT = "The seed lies in the ground. " * 20_000
TOGETHER = 12
FAULT = 500
LEFT = 8
"""Calls that are left, so that surely some are before their end."""
PATTERNS = ("[a-z]{%d}", "(yes|no){1,%d}", r"\d{1,%d}\.\d+")
SAMPLING: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 0},
    {"temperature": 1, "top_k": 40, "top_p": 0.9},
    {"temperature": 0.7, "min_p": 0.05, "repetition_penalty": 1.1, "logprobs": {"top": 5}},
    {"num_return": 3, "temperature": 1},
    {"stop": [" the", "\n\n"], "frequency_penalty": 0.5},
    {"beam_width": 3},
)


@dataclass(slots=True)
class Tally:
    """How often each kind was sent, each status that came, and what was wrong."""

    sent: Counter[str] = field(default_factory=Counter)
    statuses: Counter[int | None] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)

    @property
    def faults(self) -> int:
        """Answers that say the server is to blame."""
        return sum(count for status, count in self.statuses.items() if (status or 0) >= FAULT)

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(self.sent + other.sent, self.statuses + other.statuses, self.problems + other.problems)


class Caller:
    """One of them. `run` calls until it is told to stop."""

    def __init__(self, url: str, key: str, seed: int) -> None:
        self.tally = Tally()
        self._url = url
        self._key = key
        self._random = random.Random(seed)
        self._client = httpx.Client(base_url=url, headers={"authorization": f"Bearer {key}"}, timeout=TIMEOUT_S)
        self._texts: dict[str, str] = {}
        self._hostile = [hostile for hostile in every_input() if hostile.within_s <= TIMEOUT_S]
        self.kinds: Mapping[Callable[[], None], int] = {
            self.whole: 20,
            self.stream: 20,
            self.leave_stream: 12,
            self.leave_whole: 8,
            self.turn: 20,
            self.fork: 5,
            self.forget: 2,
            self.constrained: 4,
            self.chat: 4,
            self.hostile: 5,
        }
        """What it does, and how often of a hundred times: a fifth is cancelled."""

    def close(self) -> None:
        self._client.close()

    def run(self, over: threading.Event) -> None:
        """Call until `over`."""
        kinds, weights = list(self.kinds), list(self.kinds.values())
        while not over.is_set():
            (kind,) = self._random.choices(kinds, weights)
            self.do(kind)

    def do(self, kind: Callable[[], None]) -> None:
        """One call."""
        self.tally.sent[kind.__name__] += 1
        try:
            kind()
        except httpx.HTTPError as error:
            self.tally.problems.append(f"{kind.__name__}: {error!r}")

    def everything(self) -> None:
        """Each kind of call and each hostile input once, and long bodies together: each thread that reads has begun."""
        for kind in self.kinds:
            self.do(kind)
        with ThreadPoolExecutor(TOGETHER) as pool:
            sent = [pool.submit(self._post, "/tokenize", {"text": LONG_TEXT}, (200,)) for _ in range(TOGETHER)]
        for each in sent:
            each.result()
        self._every_status()
        for hostile in self._hostile:
            self._send(hostile)

    def fill_constraints(self) -> None:
        """As many different constraints as the server keeps."""
        for number in range(MAX_ENTRIES):
            self._constrained(PATTERNS[0] % (number + 1))

    def _every_status(self) -> None:
        """That comes with the kinds of calls: each is a series of the metrics from its first time on."""
        self._post("/generate", {"prompt": "a", "max_new_tokens": 1, "session_id": "a"}, (200,))
        for copied, status in (("a", 409), ("b", 201)):
            self._post("/sessions/a/fork", {"session_id": copied}, (status,))
        for name, status in (("a", 204), ("b", 204), ("a", 404)):
            self._count(self._client.delete(f"/sessions/{name}"), (status,))
        self._post("/sessions/a/fork", {"session_id": "b"}, (404,))
        for _ in range(LEFT):
            self.leave_stream()
            self.leave_whole()

    def whole(self) -> None:
        self._post("/generate", self._body(), (200,))

    def stream(self) -> None:
        with self._streaming(self._body()) as lines:
            ends = [line for line in lines if line == "data: [DONE]"]
        if len(ends) != 1:
            self.tally.problems.append(f"a stream with {len(ends)} ends")

    def leave_stream(self) -> None:
        """Close the connection in the middle."""
        with self._streaming(self._body() | {"max_new_tokens": 200, "ignore_eos": True}) as lines:
            for _ in range(self._random.randrange(20)):
                next(lines, None)

    def leave_whole(self) -> None:
        """Go away before the answer, in the queue or in the middle."""
        body = self._body() | {"max_new_tokens": 200, "ignore_eos": True}
        with suppress(httpx.ReadTimeout):
            self._client.post("/generate", json=body, timeout=self._random.uniform(0.001, 0.3))

    def turn(self) -> None:
        """Go on with a session, or change what it said before."""
        name = self._session()
        text = self._texts.get(name, "")[-MOST_TRANSCRIPT:]
        if self._random.random() < 0.3:
            text = text[: self._random.randrange(len(text) + 1)]
        prompt = text + self._words(30)
        answer = self._post(
            "/generate", self._body() | {"prompt": prompt, "session_id": name, "num_return": 1}, (200, 409)
        )
        self._texts[name] = prompt + answer.json().get("text", "")

    def fork(self) -> None:
        name, copied = self._session(), self._session()
        self._post(f"/sessions/{name}/fork", {"session_id": copied}, (201, 404, 409))

    def forget(self) -> None:
        self._count(self._client.delete(f"/sessions/{self._session()}"), (204, 404, 409))

    def constrained(self) -> None:
        pattern = self._random.choice(PATTERNS) % self._random.randrange(1, 100)
        self._constrained(pattern)

    def _constrained(self, pattern: str) -> None:
        fields = {"constraint": {"regex": pattern}, "max_new_tokens": 200}
        self._post("/generate", {"prompt": self._words(30), **fields}, (200,))

    def chat(self) -> None:
        messages = [{"role": "user", "content": self._words(40)}]
        self._post("/v1/chat/completions", {"messages": messages, "max_tokens": 20, "seed": 3}, (200,))

    def hostile(self) -> None:
        self._send(self._random.choice(self._hostile))

    def _send(self, hostile: Hostile) -> None:
        """With the key, so that it comes further. How long it takes says nothing while others call."""
        head = f"\r\nauthorization: Bearer {self._key}\r\nhost: ".encode()
        raw = hostile.raw.replace(b"\r\nhost: ", head, 1)
        keyless = () if raw != hostile.raw else (401,)
        answer = talk(self._url, raw)
        self.tally.statuses[answer.status] += 1
        found = replace(hostile, within_s=TIMEOUT_S, statuses=hostile.statuses + keyless).problems(answer)
        self.tally.problems += [f"{hostile.name}: {problem}" for problem in found]

    def _body(self) -> dict[str, Any]:
        fields = {
            "prompt": self._words(LONGEST_PROMPT),
            "max_new_tokens": self._random.randint(1, LONGEST_TEXT),
            "seed": self._random.randrange(100),
            "use_cache": self._random.random() < 0.8,
        }
        return {**fields, **self._random.choice(SAMPLING)}

    def _words(self, most: int) -> str:
        return " ".join(self._random.choices(WORDS, k=self._random.randint(1, most)))

    def _session(self) -> str:
        return f"session-{self._random.randrange(SESSIONS)}"

    def _post(self, path: str, body: Mapping[str, Any], expected: tuple[int, ...]) -> httpx.Response:
        return self._count(self._client.post(path, json=body), expected)

    def _count(self, answer: httpx.Response, expected: tuple[int, ...]) -> httpx.Response:
        self.tally.statuses[answer.status_code] += 1
        if answer.status_code not in expected:
            self.tally.problems.append(f"{answer.request.url.path}: {answer.status_code} {answer.text[:300]}")
        return answer

    @contextmanager
    def _streaming(self, body: Mapping[str, Any]) -> Iterator[Iterator[str]]:
        with self._client.stream("POST", "/generate", json={**body, "stream": True}) as answer:
            self.tally.statuses[answer.status_code] += 1
            if answer.is_error:
                self.tally.problems.append(f"a stream: {answer.status_code} {answer.read()[:300]!r}")
            yield iter(answer.iter_lines())
