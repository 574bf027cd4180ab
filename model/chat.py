"""Messages to token ids, by the chat template that comes with a model.

Knows the tokenizer; knows no HTTP and no model. The template is the model's, which the operator chose: what it writes
is limited, how long it runs is not. The messages are a stranger's.
Always: the control ids are those that the template writes, and none comes from a message; the ids between two of
them are those of the rendered text between them; and the same messages give the same ids.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import jinja2
import jinja2.meta
from jinja2.sandbox import ImmutableSandboxedEnvironment

from model.loading.checkpoint import MAX_TEMPLATE_BYTES
from model.tokenizer import Tokenizer

MAX_RENDERED_CHARACTERS = 4 << 20

Role = Literal["system", "user", "assistant"]


@dataclass(frozen=True, slots=True)
class Message:
    role: Role
    content: str


class ChatTemplateError(Exception):
    """The template cannot be used, or cannot render these messages; `reason` says why."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"chat template: {reason}")
        self.reason = reason


class ChatTemplate:
    """A compiled chat template and the tokenizer whose control tokens it writes. Any thread may call it."""

    def __init__(self, template: str, tokenizer: Tokenizer) -> None:
        """Raises ChatTemplateError for one that is too long, is no Jinja, or needs what the model does not name."""
        if len(template.encode(errors="replace")) > MAX_TEMPLATE_BYTES:
            raise ChatTemplateError(f"longer than {MAX_TEMPLATE_BYTES} bytes")
        environment = _environment()
        try:
            self._template = environment.from_string(template)
            variables = jinja2.meta.find_undeclared_variables(environment.parse(template))
        except Exception as problem:  # besides syntax errors: deep nesting, and whatever constant folding runs into
            raise ChatTemplateError(_reason(problem)) from problem
        self._tokenizer = tokenizer
        self._variables = _token_variables(tokenizer)
        if "eos_token" in variables - self._variables.keys():
            raise ChatTemplateError("it writes eos_token, and the model has not exactly one")
        written = tokenizer.control_token_ids - tokenizer.unused_token_ids
        self._controls = _ControlStrings({tokenizer.token_text(i): i for i in written})

    def encode(self, messages: Sequence[Message], add_generation_prompt: bool = True) -> list[int]:
        """The ids of the rendered messages, a control token typed in a message being text.

        Three renderings settle what is whose. The plain one is the text. In the second, control strings in messages
        are disguised, which shows where the template's own are; undisguised it must be the plain one, so the
        disguise has no influence. In the third, messages have no character of any control string left, which shows
        which control tokens there must be: so none is joined from parts of messages and template.

        Raises UnencodableText for a message that the vocabulary cannot spell, ChatTemplateError otherwise.
        """
        for message in messages:
            self._tokenizer.require_encodable(message.content)
        controls = self._controls
        contents = [message.content for message in messages]
        plain = self._render(messages, contents, add_generation_prompt)
        disguised = self._render(messages, map(controls.disguise, contents), add_generation_prompt)
        blank = self._render(messages, map(controls.blank, contents), add_generation_prompt)
        if controls.undisguise(disguised) != plain:
            raise ChatTemplateError("it looks into messages, and one of them contains a control string")
        if controls.ids_in(disguised) != controls.ids_in(blank):
            raise ChatTemplateError("it would make a control token out of a message's text")
        ids: list[int] = []
        for piece in controls.split(disguised):
            ids += [piece] if isinstance(piece, int) else self._tokenizer.encode(controls.undisguise(piece))
        return ids

    def _render(self, messages: Sequence[Message], contents: Iterable[str], add_generation_prompt: bool) -> str:
        pieces, length = [], 0
        rendering = self._template.generate(
            messages=[{"role": m.role, "content": c} for m, c in zip(messages, contents, strict=True)],
            add_generation_prompt=add_generation_prompt,
            tools=None,
            documents=None,
            **self._variables,
        )
        try:
            for piece in rendering:
                length += len(piece)
                if length > MAX_RENDERED_CHARACTERS:
                    break
                pieces.append(piece)
        except Exception as problem:  # a template may fail in any way that an expression can
            raise ChatTemplateError(_reason(problem)) from problem
        if length > MAX_RENDERED_CHARACTERS:
            raise ChatTemplateError(f"it renders more than {MAX_RENDERED_CHARACTERS} characters")
        return "".join(pieces)


class _ControlStrings:
    """The spellings of control tokens: found in text, and hidden where they must not be found."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        self._ids = {spelling: token_id for spelling, token_id in ids.items() if spelling}
        longest_first = sorted(self._ids, key=len, reverse=True)
        pattern = "|".join(map(re.escape, longest_first)) or "(?!)"
        self._any = re.compile(pattern)
        self._start = re.compile(f"(?={pattern}).", re.DOTALL)
        # Lone surrogates stand for the first characters of control strings: no encodable message contains one.
        firsts = sorted({spelling[0] for spelling in self._ids})
        self._disguises = {first: chr(0xD800 + place) for place, first in enumerate(firsts)}
        self._undisguises = str.maketrans({disguise: first for first, disguise in self._disguises.items()})
        self._blanks = str.maketrans(dict.fromkeys("".join(self._ids), "\N{REPLACEMENT CHARACTER}"))

    def disguise(self, content: str) -> str:
        """`content` with another character wherever a control string starts, overlapping ones too."""
        if self._any.search(content) is None:
            return content
        return self._start.sub(lambda match: self._disguises[match[0]], content)

    def undisguise(self, text: str) -> str:
        return text.translate(self._undisguises)

    def blank(self, content: str) -> str:
        """As long as `content`, without any character of a control string."""
        return content.translate(self._blanks)

    def split(self, text: str) -> list[str | int]:
        """The control tokens in `text`, leftmost and longest first, and the text between them, in order."""
        pieces: list[str | int] = []
        start = 0
        for match in self._any.finditer(text):
            pieces += [text[start : match.start()], self._ids[match[0]]]
            start = match.end()
        return [piece for piece in [*pieces, text[start:]] if piece != ""]

    def ids_in(self, text: str) -> list[int]:
        return [self._ids[match[0]] for match in self._any.finditer(text)]


def _environment() -> ImmutableSandboxedEnvironment:
    """Jinja as `transformers` sets it up for chat templates, less the clock and chance: ids depend on messages only."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
    )
    environment.filters["tojson"] = _to_json
    del environment.filters["random"]
    del environment.globals["lipsum"]
    environment.globals["raise_exception"] = _raise_exception
    return environment


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it stands, where Jinja's own filter escapes it for HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _token_variables(tokenizer: Tokenizer) -> dict[str, str]:
    """What a template may call by name: the spellings of the beginning and the end of a text, where there is one."""
    variables = {}
    if tokenizer.bos_token_id is not None:
        variables["bos_token"] = tokenizer.token_text(tokenizer.bos_token_id)
    if len(tokenizer.eos_token_ids) == 1:
        variables["eos_token"] = tokenizer.token_text(*tokenizer.eos_token_ids)
    return variables


def _reason(problem: Exception) -> str:
    return str(problem) or type(problem).__name__
