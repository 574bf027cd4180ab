"""The reader of GGUF files, with the tokenizer and the chat template that a file asks for."""

import contextlib
import os
import struct
from pathlib import Path

from model.chat import ChatTemplate, ChatTemplateError, Message
from model.loading.checkpoint import Checkpoint, ModelFileError
from model.loading.gguf import load_gguf
from model.tokenizer import Tokenizer, UnencodableText
from tests.fuzz.target import Run, Target
from tests.model.loading.gguf_bytes import f32, text, valid_draft
from tests.model.loading.test_gguf_hostile import CASES
from tests.model.loading.test_gguf_mutations import TELLING_NUMBERS, check_believed

TEMPLATE = "{% for m in messages %}<end>{{ m['role'] }} {{ m['content'] }}{% endfor %}{{ eos_token }}"
MESSAGES = [Message("user", "ab<end>b")]


def gguf_target() -> Target:
    """Seeds are a valid file, some with more in them, and those that are known to be refused."""
    valid = valid_draft().build()
    talking = valid_draft().set("tokenizer.chat_template", text(TEMPLATE)).set("llama.rope.freq_base", f32(1e4))
    hostile = []
    for _, damage in CASES.values():
        draft = valid_draft()
        damage(draft)
        hostile.append(draft.build())
    names = tuple(key.encode() for key, _ in talking.keys)
    numbers = tuple(struct.pack("<Q", number) for number in TELLING_NUMBERS)
    return Target((valid, talking.build(), *hostile), names + numbers, _reader, most_bytes=8192)


def _reader() -> Run:
    descriptor = os.memfd_create("model.gguf")
    path = Path(f"/proc/self/fd/{descriptor}")

    def run(data: bytes) -> None:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, data, 0)
        with contextlib.suppress(ModelFileError):
            checkpoint = load_gguf(path)
            check_believed(checkpoint)
            _speak(checkpoint)

    return run


def _speak(checkpoint: Checkpoint) -> None:
    """What a server does with a vocabulary and a template."""
    tokenizer = Tokenizer(checkpoint.vocabulary)
    with contextlib.suppress(UnencodableText):
        assert "ab" == tokenizer.decode(tokenizer.encode("ab"))
    if checkpoint.chat_template is not None:
        with contextlib.suppress(ChatTemplateError, UnencodableText):
            ChatTemplate(checkpoint.chat_template, tokenizer).encode(MESSAGES)
