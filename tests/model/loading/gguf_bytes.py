"""GGUF files written byte by byte, so that each can be wrong in one exact way.

`valid_draft()` is the smallest Llama that loads; tests change one thing in it and build it.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

U8, U32, I32, F32, BOOL, STRING, ARRAY, U64 = 0, 4, 5, 6, 7, 8, 9, 10
GGML_F32, GGML_Q8_0 = 0, 8
TOKENS = ("<end>", "a", "b", "ab")
WIDTH, HEADS, KV_HEADS, FEED_FORWARD, CONTEXT = 4, 2, 1, 6, 16


def raw_text(text: str | bytes) -> bytes:
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<Q", len(data)) + data


def u32(number: int) -> bytes:
    return struct.pack("<II", U32, number)


def i32(number: int) -> bytes:
    return struct.pack("<Ii", I32, number)


def f32(number: float) -> bytes:
    return struct.pack("<If", F32, number)


def flag(value: int) -> bytes:
    return struct.pack("<IB", BOOL, value)


def text(value: str | bytes) -> bytes:
    return struct.pack("<I", STRING) + raw_text(value)


def texts(values: Sequence[str | bytes]) -> bytes:
    return struct.pack("<IIQ", ARRAY, STRING, len(values)) + b"".join(map(raw_text, values))


def i32s(values: Sequence[int]) -> bytes:
    return struct.pack(f"<IIQ{len(values)}i", ARRAY, I32, len(values), *values)


@dataclass
class Tensor:
    """One entry of the tensor table, and the bytes that its data is meant to have."""

    name: str
    dimensions: tuple[int, ...]
    """Innermost first, as files have them."""
    data: bytes
    type: int = GGML_F32
    offset: int | None = None
    """From the start of the data; None places it after the tensor before."""
    dimension_count: int | None = None

    def entry(self, offset: int) -> bytes:
        count = len(self.dimensions) if self.dimension_count is None else self.dimension_count
        shape = struct.pack(f"<I{len(self.dimensions)}Q", count, *self.dimensions)
        return raw_text(self.name) + shape + struct.pack("<IQ", self.type, offset)


@dataclass
class Draft:
    """A file in the making; a field that is None is filled in correctly."""

    keys: list[tuple[str, bytes]]
    tensors: list[Tensor]
    magic: bytes = b"GGUF"
    version: int = 3
    tensor_count: int | None = None
    key_count: int | None = None
    raw_key: bytes = b""
    """Written after the last key, as it is; counted as one when not empty."""
    layout_alignment: int = 32
    """What the tensors are really aligned to, whatever the keys say."""
    start_alignment: int = 32
    """What the start of the data is really aligned to."""
    missing_bytes: int = 0
    """How many to leave off at the end."""

    def set(self, key: str, value: bytes) -> "Draft":
        self.remove(key)
        self.keys.append((key, value))
        return self

    def remove(self, key: str) -> "Draft":
        self.keys = [(name, value) for name, value in self.keys if name != key]
        return self

    def tensor(self, name: str) -> Tensor:
        return next(tensor for tensor in self.tensors if tensor.name == name)

    def build(self) -> bytes:
        key_count = len(self.keys) + bool(self.raw_key) if self.key_count is None else self.key_count
        tensor_count = len(self.tensors) if self.tensor_count is None else self.tensor_count
        head = self.magic + struct.pack("<IQQ", self.version, tensor_count, key_count)
        head += b"".join(raw_text(key) + value for key, value in self.keys) + self.raw_key
        data = b""
        for tensor in self.tensors:
            data += b"\0" * (-len(data) % self.layout_alignment)
            head += tensor.entry(len(data) if tensor.offset is None else tensor.offset)
            data += tensor.data
        head += b"\0" * (-len(head) % self.start_alignment)
        whole = head + data
        return whole[: len(whole) - self.missing_bytes]

    def write(self, path: Path) -> Path:
        path.write_bytes(self.build())
        return path


def _floats(count: int, start: float) -> bytes:
    return struct.pack(f"<{count}f", *[start + i / 8 for i in range(count)])


def _matrix(name: str, outputs: int, inputs: int) -> Tensor:
    return Tensor(name, (inputs, outputs), _floats(outputs * inputs, -1.0))


def _gain(name: str) -> Tensor:
    return Tensor(name, (WIDTH,), _floats(WIDTH, 1.0))


def valid_draft() -> Draft:
    """One layer of width 4: two heads of two, one key-value head; four tokens, one merge."""
    kv_width = KV_HEADS * WIDTH // HEADS
    return Draft(
        keys=[
            ("general.architecture", text("llama")),
            ("llama.block_count", u32(1)),
            ("llama.context_length", u32(CONTEXT)),
            ("llama.embedding_length", u32(WIDTH)),
            ("llama.feed_forward_length", u32(FEED_FORWARD)),
            ("llama.attention.head_count", u32(HEADS)),
            ("llama.attention.head_count_kv", u32(KV_HEADS)),
            ("llama.attention.layer_norm_rms_epsilon", f32(1e-5)),
            ("llama.vocab_size", u32(len(TOKENS))),
            ("tokenizer.ggml.model", text("gpt2")),
            ("tokenizer.ggml.pre", text("smollm")),
            ("tokenizer.ggml.tokens", texts(TOKENS)),
            ("tokenizer.ggml.token_type", i32s((3, 1, 1, 1))),
            ("tokenizer.ggml.merges", texts(("a b",))),
            ("tokenizer.ggml.eos_token_id", u32(0)),
        ],
        tensors=[
            _matrix("token_embd.weight", len(TOKENS), WIDTH),
            _gain("blk.0.attn_norm.weight"),
            _matrix("blk.0.attn_q.weight", WIDTH, WIDTH),
            _matrix("blk.0.attn_k.weight", kv_width, WIDTH),
            _matrix("blk.0.attn_v.weight", kv_width, WIDTH),
            _matrix("blk.0.attn_output.weight", WIDTH, WIDTH),
            _gain("blk.0.ffn_norm.weight"),
            _matrix("blk.0.ffn_gate.weight", FEED_FORWARD, WIDTH),
            _matrix("blk.0.ffn_up.weight", FEED_FORWARD, WIDTH),
            _matrix("blk.0.ffn_down.weight", WIDTH, FEED_FORWARD),
            _gain("output_norm.weight"),
        ],
    )
