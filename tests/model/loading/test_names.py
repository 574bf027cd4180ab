"""Tensor names go both ways."""

import pytest

from model.loading.names import gguf_name, name_from_gguf

PAIRS = [
    ("embedding", "token_embd.weight"),
    ("output_norm", "output_norm.weight"),
    ("head", "output.weight"),
    ("layers.0.attention_norm", "blk.0.attn_norm.weight"),
    ("layers.1.query", "blk.1.attn_q.weight"),
    ("layers.2.key", "blk.2.attn_k.weight"),
    ("layers.3.value", "blk.3.attn_v.weight"),
    ("layers.10.attention_output", "blk.10.attn_output.weight"),
    ("layers.29.feed_forward_norm", "blk.29.ffn_norm.weight"),
    ("layers.4.gate", "blk.4.ffn_gate.weight"),
    ("layers.5.up", "blk.5.ffn_up.weight"),
    ("layers.6.down", "blk.6.ffn_down.weight"),
]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS)
def test_a_tensor_has_one_name_on_each_side(ours: str, theirs: str) -> None:
    assert theirs == gguf_name(ours)
    assert ours == name_from_gguf(theirs)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "embedding",
        "blk.0.attn_qkv.weight",
        "blk.0.attn_q",
        "blk.00.attn_q.weight",
        "blk.-1.attn_q.weight",
        "blk.0.ffn_gate_inp.weight",
    ],
)
def test_a_tensor_that_no_supported_model_has_gets_no_name(name: str) -> None:
    assert name_from_gguf(name) is None


def test_a_name_that_is_not_ours_has_no_name_in_files() -> None:
    with pytest.raises(KeyError):
        gguf_name("layers.0.router")
