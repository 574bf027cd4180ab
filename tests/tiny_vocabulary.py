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
