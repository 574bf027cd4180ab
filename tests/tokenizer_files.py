"""Folders with a `tokenizer.json`, made by the `tokenizers` library in the forms that models are published in."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA_3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN_2 = LLAMA_3.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
LEARNED = (
    "The seed lies in the ground and waits 123 days for the rain; it's 1234567 rows.\n\n\tdef grow(seed): pass",
    "HTTPServer McDonald don't DON'T we'll  two   spaces 12 345 6789 naïve café Größe \r\n 種は土の中で。 🌱🌱",
)
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def _byte_level(*before: Any, use_regex: bool) -> Any:
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)
    return pre_tokenizers.Sequence([*before, last]) if before else last


def _split(pattern: str) -> Any:
    return _byte_level(pre_tokenizers.Split(Regex(pattern), behavior="isolated"), use_regex=False)


WORDS: Mapping[str, Any] = {
    "gpt-2": _byte_level(use_regex=True),
    "smollm": _byte_level(pre_tokenizers.Digits(individual_digits=True), use_regex=True),
    "llama-bpe": _split(LLAMA_3),
    "qwen2": _split(QWEN_2),
    "tekken": _split(TEKKEN),
}
"""The pre-tokenizers of published models, by our names."""


def byte_level(name: str, *, ignore_merges: bool = False) -> tokenizers.Tokenizer:
    """Trained on two lines, with "<|end|>" special and "<tool>" not."""
    made = tokenizers.Tokenizer(models.BPE(ignore_merges=ignore_merges))
    made.pre_tokenizer = WORDS[name]
    made.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = trainers.BpeTrainer(vocab_size=380, initial_alphabet=alphabet, show_progress=False)
    made.train_from_iterator(LEARNED, trainer)
    made.add_special_tokens([AddedToken("<|end|>", normalized=False)])
    made.add_tokens([AddedToken("<tool>", normalized=False)])
    return made


def byte_fallback(style: str) -> tokenizers.Tokenizer:
    """SentencePiece's kind of vocabulary as `prefixed` (Llama 2), `metaspace` (later Llama) or `plain` (Gemma)."""
    pieces = ["▁", *"abcdehlostw", "▁a", "he", "ll", "lo", "hel", "hello", "▁hello", "▁w", "aa", "▁▁"]
    merges = [("▁", "a"), ("h", "e"), ("l", "l"), ("l", "o"), ("he", "l"), ("hel", "lo"), ("▁", "hello"), ("▁", "w")]
    tokens = ["<unk>", "<s>", "</s>", *BYTES, *pieces]
    made = tokenizers.Tokenizer(
        models.BPE(
            vocab={token: place for place, token in enumerate(tokens)},
            merges=[*merges, ("a", "a"), ("▁", "▁")],
            unk_token="<unk>",
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    to_spaces = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
    if style == "plain":
        made.normalizer = normalizers.Replace(" ", "▁")
        made.pre_tokenizer = pre_tokenizers.Split(" ", behavior="merged_with_previous")
        made.decoder = decoders.Sequence(to_spaces)
    else:
        made.decoder = decoders.Sequence([*to_spaces, decoders.Strip(" ", 1, 0)])
    if style == "prefixed":
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    if style == "metaspace":
        made.pre_tokenizer = pre_tokenizers.Metaspace("▁", prepend_scheme="first", split=False)
    made.add_special_tokens([AddedToken(each, normalized=False) for each in ("<unk>", "<s>", "</s>")])
    made.add_tokens([AddedToken("<b>", normalized=False)])
    made.post_processor = processors.TemplateProcessing("<s> $A", "<s> $A <s> $B", [("<s>", 1)])
    return made


def write_folder(folder: Path, made: tokenizers.Tokenizer, settings: Mapping[str, Any] | None = None) -> Path:
    made.save(str(folder / "tokenizer.json"))
    if settings is not None:
        (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return folder
