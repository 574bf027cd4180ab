"""The tokenizer of `transformers`, made from the same GGUF file: the truth for ids and for chats."""

from functools import cache
from pathlib import Path
from typing import Any


@cache
def transformers_tokenizer(path: Path) -> Any:
    """The tokenizer that `transformers` makes of a GGUF file whose pre-tokenizer is "smollm".

    It reads every GGUF file as GPT-2's, so digits are split here as the model's own tokenizer splits them.
    """
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
    )
    return tokenizer
