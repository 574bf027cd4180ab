"""Log-probabilities in the two forms of OpenAI's routes. They are natural logarithms of the model's own distribution.

Knows tokens as the tokenizer spells them. Always: every generated token is listed, also those of a stop or an end
whose text was cut.
"""

import codecs
from collections.abc import Sequence
from typing import Any

from service.context import Tokenizer
from service.request import TokenRecord


def chat_logprobs(tokenizer: Tokenizer, tokens: Sequence[TokenRecord]) -> dict[str, Any]:
    """The form of `/v1/chat/completions`."""

    def entry(token_id: int, logprob: float | None) -> dict[str, Any]:
        written = list(tokenizer.token_bytes(token_id))
        return {"token": tokenizer.token_text(token_id), "logprob": logprob, "bytes": written}

    content = [
        entry(token.token_id, token.logprob)
        | {"top_logprobs": [entry(likely.token_id, likely.logprob) for likely in token.top]}
        for token in tokens
    ]
    return {"content": content, "refusal": None}


class CompletionLogprobs:
    """The form of `/v1/completions`, for one text that comes whole or in pieces."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._characters = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._decoded = 0
        """Characters that the bytes so far have completed."""
        self._sent = 0
        """Characters of the text so far, where a stop may have cut some."""

    def next(self, text: str, tokens: Sequence[TokenRecord]) -> dict[str, Any]:
        """The tokens of the next piece of text. An offset is where in the whole text a token's first byte is seen."""
        self._sent += len(text)
        return {
            "tokens": [self._name(token.token_id) for token in tokens],
            "token_logprobs": [token.logprob for token in tokens],
            "top_logprobs": [self._top(token) for token in tokens],
            "text_offset": [self._offset(token.token_id) for token in tokens],
        }

    def _top(self, token: TokenRecord) -> dict[str, float | None]:
        likeliest: dict[str, float | None] = {self._name(likely.token_id): likely.logprob for likely in token.top}
        return likeliest | {self._name(token.token_id): token.logprob}

    def _offset(self, token_id: int) -> int:
        written = self._tokenizer.token_bytes(token_id)
        self._decoded += len(self._characters.decode(written[:1]))
        is_last = bool(written) and not self._characters.getstate()[0]
        offset = self._decoded - is_last
        self._decoded += len(self._characters.decode(written[1:]))
        return min(offset, self._sent)

    def _name(self, token_id: int) -> str:
        """The token's text, or its bytes in OpenAI's notation where they are no whole characters: names are keys."""
        written = self._tokenizer.token_bytes(token_id)
        try:
            return written.decode() or self._tokenizer.token_text(token_id)
        except UnicodeDecodeError:
            return "bytes:" + "".join(f"\\x{byte:02x}" for byte in written)
