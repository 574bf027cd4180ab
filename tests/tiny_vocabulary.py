"""Vocabularies small enough to read: every byte, a few merges and a few control tokens."""

from collections.abc import Sequence

from tokenizers import pre_tokenizers

from model.loading.checkpoint import Vocabulary

CONTROL = ("<|end|>", "<|start|>", "<|pad|>")
END, START, PAD = range(3)


def tiny_vocabulary(
    *,
    merges: Sequence[str] = ("h e", "l l", "he ll", "hell o", "Ġ w", "Ġ Ġ", "1 2", "12 3"),
    control: Sequence[str] = CONTROL,
    user_defined: Sequence[str] = (),
    pre_tokenizer: str = "gpt-2",
    bos_token_id: int | None = None,
    adds_bos: bool = False,
) -> Vocabulary:
    """Control tokens first, then the 256 bytes, what the merges make, and the user-defined tokens."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    merged = [merge.replace(" ", "") for merge in merges]
    tokens = (*control, *letters, *merged, *user_defined)
    return Vocabulary(
        pre_tokenizer=pre_tokenizer,
        tokens=tokens,
        merges=tuple(merges),
        control_token_ids=frozenset(range(len(control))),
        user_defined_token_ids=frozenset(range(len(tokens) - len(user_defined), len(tokens))),
        eos_token_ids=frozenset({END}),
        bos_token_id=bos_token_id,
        adds_bos=adds_bos,
    )


PIECES = (
    "▁",
    "a",
    "b",
    "c",
    "h",
    "e",
    "l",
    "o",
    "w",
    "▁a",
    "he",
    "ll",
    "llo",
    "hello",
    "▁hello",
    "▁w",
    "aa",
    "aaa",
    "▁▁",
    "ab",
    "aba",
    "ba",
    "\n",
)


def tiny_pieces(
    pieces: Sequence[str] = PIECES,
    *,
    scores: Sequence[float] | None = None,
    control: Sequence[str] = ("<unk>", "<s>", "</s>"),
    user_defined: Sequence[str] = (),
    unused: Sequence[str] = (),
    adds_bos: bool = False,
    adds_space_prefix: bool = True,
) -> Vocabulary:
    """A vocabulary of SentencePiece: control tokens, bytes, pieces with falling scores, then the others."""
    tokens = (*control, *(f"<0x{byte:02X}>" for byte in range(256)), *pieces, *user_defined, *unused)
    first = len(control) + 256
    given = [-float(i) for i in range(len(pieces))] if scores is None else list(scores)
    last = first + len(pieces) + len(user_defined)
    return Vocabulary(
        pre_tokenizer="",
        tokens=tokens,
        merges=(),
        control_token_ids=frozenset(range(len(control))),
        user_defined_token_ids=frozenset(range(first + len(pieces), last)),
        eos_token_ids=frozenset({2}),
        bos_token_id=1,
        adds_bos=adds_bos,
        form="sentencepiece",
        scores=(*[0.0] * first, *given, *[0.0] * (len(tokens) - first - len(pieces))),
        unused_token_ids=frozenset(range(last, len(tokens))),
        byte_token_ids=frozenset(range(len(control), first)),
        adds_space_prefix=adds_space_prefix,
    )
