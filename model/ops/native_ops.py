"""The native op set: the decoder is recorded once, and each step is one call into compiled code.

Knows how weights, pages and batches are handed over; the numbers are made in `model/native`. Imports no torch.
Always: a token's logits are the same bits whatever shares the step, however the prompt was cut and on how many threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from model.batch import Batch
from model.compression.codes import codes_of_blocks
from model.config import ModelConfig, RopeScaling
from model.decoding.params import Draw, Drawn, Ranked, Ranking, Score
from model.loading.tensor import StoredTensor
from model.native import _native
from model.ops.native_choice import draw_tuple, drawn, rank_tuple, ranked, score_tuple, scored
from model.ops.native_forms import WeightType, weight_form
from model.ops.recording import Call, Recorded, Recording, Weights, assign_buffers, fused

KvType = Literal["int8", "float16"]
Isa = Literal["auto", "scalar", "avx2", "avx512"]

NUMERIC_VERSION = 1
"""Grows whenever a change to the kernels changes a bit of any answer."""
PACK_ROWS = 4096
"""Rows of a matrix read from the file at once."""
COMPILED_FORMATS = ("Q4_0", "Q4_1", "Q8_0")
"""Block formats that `model/native` takes apart itself; others come to it as codes."""


@dataclass(frozen=True, slots=True)
class Matrix:
    """A packed matrix in the native memory."""

    index: int
    outputs: int


@dataclass(frozen=True, slots=True)
class Vector:
    index: int


def kv_bytes_per_token(config: ModelConfig, kv_type: KvType) -> int:
    """Keys and values of one position in all layers; int8 has a float32 scale for each head of either."""
    head_bytes = config.head_width + 4 if kv_type == "int8" else 2 * config.head_width
    return 2 * config.layer_count * config.kv_head_count * head_bytes


class NativeOps:
    """An `OpSet` over recorded arrays."""

    def __init__(
        self,
        config: ModelConfig,
        page_count: int,
        *,
        threads: int = 1,
        kv_type: KvType = "int8",
        isa: Isa = "auto",
        weight_type: WeightType = "int8",
    ) -> None:
        """Raises ValueError when no kernel can work on the model's shape."""
        self._native = _native.Engine(
            layers=config.layer_count,
            heads=config.head_count,
            kv_heads=config.kv_head_count,
            head_width=config.head_width,
            context=config.context_length,
            pages=page_count,
            kv_type=kv_type,
            isa=isa,
            threads=threads,
        )
        self._attention = _attention_weights(self._native, config)
        self._page_count = page_count
        self._weight_type = weight_type
        self._recording = Recording()
        self._stored: dict[int, tuple[Recorded, Recorded]] = {}

    @property
    def page_count(self) -> int:
        return self._page_count

    @property
    def isa(self) -> str:
        """The instruction set that the kernels run on."""
        return self._native.isa

    @property
    def weight_bytes(self) -> int:
        return self._native.weight_bytes

    def poison_pages(self) -> None:
        """Fill every page with NaN, so that a read of anything unwritten would show."""
        self._native.poison_pages()

    def matrix(self, *parts: StoredTensor) -> Matrix:
        outputs, inputs = sum(part.shape[0] for part in parts), parts[0].shape[1]
        form = weight_form(parts, self._weight_type)
        index = self._native.add_matrix(form.eight_bits, form.centred, form.half_scales, outputs, inputs)
        first = 0
        for part, is_kept, codes in zip(parts, form.kept, form.codes or [None] * len(parts), strict=True):
            packed = (
                self._pack(index, first, part, exact=is_kept)
                if codes is None
                else self._native.pack_codes(index, first, codes.codes, codes.d, codes.m)
            )
            if not packed:
                raise ValueError(f"{part.name} holds numbers that are too great for the scales of its packed form")
            first += part.shape[0]
        return Matrix(index, outputs)

    def unpacked(self, matrix: Matrix) -> NDArray[np.float32]:
        """The weights that a matrix stands for in the native memory, [outputs, inputs]."""
        return self._native.unpack(matrix.index, 0, matrix.outputs)

    def vector(self, *parts: StoredTensor) -> Vector:
        return Vector(self._native.add_vector(np.concatenate([part.dequantised() for part in parts])))

    def embed(self, table: Matrix, scale: float = 1.0) -> Recorded:
        return self._recording.add("embed", self._native.inputs_of(table.index), matrix=table.index, scale=scale)

    def embed_positions(self, table: Matrix) -> Recorded:
        return self._recording.add("embed_positions", self._native.inputs_of(table.index), matrix=table.index)

    def rms_norm(self, x: Recorded, gain: Vector, epsilon: float) -> Recorded:
        return self._recording.add("rms_norm", x.width, x, vector=gain.index, epsilon=epsilon)

    def layer_norm(self, x: Recorded, gain: Vector, bias: Vector, epsilon: float) -> Recorded:
        return self._recording.add("layer_norm", x.width, x, vector=gain.index, shift=bias.index, epsilon=epsilon)

    def head_norm(self, x: Recorded, gain: Vector, epsilon: float) -> Recorded:
        return self._recording.add("head_norm", x.width, x, vector=gain.index, epsilon=epsilon)

    def linear(self, x: Recorded, weight: Matrix) -> Recorded:
        return self._recording.add("linear", weight.outputs, x, matrix=weight.index)

    def add_bias(self, x: Recorded, bias: Vector) -> Recorded:
        return self._recording.add("add_bias", x.width, x, bias=bias.index)

    def split(self, x: Recorded, widths: tuple[int, ...]) -> tuple[Recorded, ...]:
        firsts = [x.first + sum(widths[:index]) for index in range(len(widths))]
        return tuple(Recorded(x.value, first, width) for first, width in zip(firsts, widths, strict=True))

    def store(self, layer: int, keys: Recorded, values: Recorded) -> None:
        self._stored[layer] = (keys, values)

    def attend(self, layer: int, queries: Recorded) -> Recorded:
        keys, values = self._stored.pop(layer)
        return self._recording.add("attend", queries.width, queries, keys, values, **self._attention[layer])

    def silu_multiply(self, gate: Recorded, up: Recorded) -> Recorded:
        return self._recording.add("silu_multiply", gate.width, gate, up)

    def gelu_multiply(self, gate: Recorded, up: Recorded) -> Recorded:
        return self._recording.add("gelu_multiply", gate.width, gate, up)

    def gelu(self, x: Recorded) -> Recorded:
        return self._recording.add("gelu", x.width, x)

    def add(self, x: Recorded, y: Recorded) -> Recorded:
        return self._recording.add("add", x.width, x, y)

    def asked_rows(self, x: Recorded) -> Recorded:
        return self._recording.add("gather", x.width, x)

    def program(self, forward: Callable[[], Recorded]) -> NativeProgram:
        self._recording = Recording()
        forward()
        calls = fused(self._recording.calls)
        widths, held = assign_buffers(calls)
        self._native.load(widths, [_instruction(call, held) for call in calls])
        return NativeProgram(self._native)

    def choose(self, logits: NativeLogits, draws: Sequence[Draw]) -> list[Drawn]:
        answers = self._native.choose([draw_tuple(draw) for draw in draws])
        return [drawn(draw, answer) for draw, answer in zip(draws, answers, strict=True)]

    def rank(self, logits: NativeLogits, rankings: Sequence[Ranking]) -> list[tuple[Ranked, ...]]:
        return [ranked(answer) for answer in self._native.rank([rank_tuple(each) for each in rankings])]

    def score(self, logits: NativeLogits, scores: Sequence[Score]) -> list[Drawn]:
        return [scored(answer) for answer in self._native.score([score_tuple(each) for each in scores])]

    def _pack(self, index: int, first: int, part: StoredTensor, *, exact: bool) -> bool:
        rows = part.rows()
        for begin in range(0, len(rows), PACK_ROWS):
            some = rows[begin : begin + PACK_ROWS]
            if exact and part.format.name in COMPILED_FORMATS:
                packed = self._native.pack_blocks(index, first + begin, part.format.name, np.ascontiguousarray(some))
            elif exact:
                codes = codes_of_blocks(part.format.name, some)
                packed = self._native.pack_codes(index, first + begin, codes.codes, codes.d, codes.m)
            else:
                blocks = some.reshape(-1, part.format.block_bytes)
                values = part.format.unpack(blocks).reshape(len(some), part.shape[1])
                packed = self._native.pack_floats(index, first + begin, np.ascontiguousarray(values))
            if not packed:
                return False
        return True


class NativeLogits:
    """Logits of one step, valid until the next."""

    def __init__(self, engine: _native.Engine) -> None:
        self._engine = engine

    def numpy(self) -> NDArray[np.float32]:
        """A copy, [asked rows, vocabulary]."""
        return self._engine.logits()


class NativeProgram:
    """The recorded decoder; a step releases the interpreter's lock once."""

    def __init__(self, engine: _native.Engine) -> None:
        self._engine = engine
        self._logits = NativeLogits(engine)

    def run(self, batch: Batch) -> NativeLogits:
        tokens: list[int] = []
        segments: list[tuple[int, int, int]] = []
        pages: list[int] = []
        for segment in batch.segments:
            tokens += segment.token_ids
            segments.append((segment.start, len(segment.token_ids), len(segment.pages)))
            pages += segment.pages
        copies = [(copy.source, copy.target, copy.positions) for copy in batch.copies]
        self._engine.run(tokens, segments, pages, batch.asked_rows(), copies)
        return self._logits


def _attention_weights(engine: _native.Engine, config: ModelConfig) -> list[Weights]:
    """What each layer's attention works with; layers that rotate alike share a table."""
    ropes = [config.rope_of(layer) for layer in range(config.layer_count)]
    tables = {rope: _add_rope(engine, *rope) for rope in dict.fromkeys(ropes) if rope is not None}
    windows = [config.window_of(layer) for layer in range(config.layer_count)]
    return [
        {
            "layer": layer,
            "rope": -1 if rope is None else tables[rope],
            "window": None if window is None else window.width,
            "scale": config.attention_scale,
        }
        for layer, (rope, window) in enumerate(zip(ropes, windows, strict=True))
    ]


def _add_rope(engine: _native.Engine, base: float, scaling: RopeScaling | None) -> int:
    if scaling is None:
        return engine.add_rope(base, None)
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    return engine.add_rope(base, (scaling.factor, low, high, scaling.original_context_length))


def _instruction(call: Call, held: dict[int, int]) -> _native.Instruction:
    def view(recorded: Recorded | None) -> tuple[int, int, int]:
        return (-1, 0, 0) if recorded is None else (held[recorded.value], recorded.first, recorded.width)

    inputs = [*call.inputs, None, None, None][:3]
    if call.added is not None:
        inputs[2] = call.added
    return _native.Instruction(
        kind=call.kind,
        source=call.source,
        asked=call.asked,
        out=view(call.out),
        a=view(inputs[0]),
        b=view(inputs[1]),
        c=view(inputs[2]),
        matrix=call.matrix,
        vector=call.vector,
        layer=call.layer,
        epsilon=call.epsilon,
        shift=call.shift,
        bias=call.bias,
        rope=call.rope,
        window=call.window,
        scale=call.scale,
    )
