"""A decoder written down once: which operations it calls, on what, in which order; and that list made short.

Knows operations and widths; knows no weights, numbers or batches. Always: what is recorded does not depend on a batch,
and each array is written once and read by what comes after it.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import Literal, TypedDict, Unpack, cast, get_args

Kind = Literal[
    "embed",
    "embed_positions",
    "linear",
    "attend",
    "gather",
    "rms_norm",
    "layer_norm",
    "head_norm",
    "silu_multiply",
    "gelu_multiply",
    "gelu",
    "add_bias",
    "add",
]
Joining = Literal["rms_norm", "layer_norm", "silu_multiply", "gelu_multiply", "gelu"]
"""What may be made row by row as a linear layer's input."""
Source = Literal["plain"] | Joining


@dataclass(frozen=True, slots=True)
class Recorded:
    """Columns of an array that some call makes: `value` numbers the array, [first, first + width) are its columns."""

    value: int
    first: int
    width: int


class Weights(TypedDict, total=False):
    """What a call works with beside arrays; see `Call`."""

    matrix: int
    vector: int
    shift: int
    bias: int
    layer: int
    rope: int
    window: int | None
    epsilon: float
    scale: float


@dataclass(frozen=True, slots=True)
class Call:
    """One operation. `inputs` are, by kind: the row to add comes third for a linear layer; queries, keys and values."""

    kind: Kind
    out: Recorded
    inputs: tuple[Recorded, ...] = ()
    added: Recorded | None = None
    """What is added to a linear layer's product."""
    source: Source = "plain"
    asked: bool = False
    """Whether it works on the rows that asked for logits only."""
    matrix: int = -1
    vector: int = -1
    """A norm's gain."""
    shift: int = -1
    """The vector that a LayerNorm adds."""
    bias: int = -1
    """The vector that is added to a linear layer's product, before `added`, or to an array."""
    layer: int = -1
    rope: int = -1
    """The rotary table of attention; -1 where nothing is rotated."""
    window: int | None = None
    """How many positions a row of attention sees, its own among them; None for all."""
    epsilon: float = 0.0
    scale: float = 1.0
    """What the scores of attention, or embedded rows, are multiplied by."""

    @property
    def reads(self) -> tuple[Recorded, ...]:
        return self.inputs if self.added is None else (*self.inputs, self.added)


@dataclass(slots=True)
class Recording:
    """The calls so far."""

    calls: list[Call] = field(default_factory=list)
    asked: bool = False

    def add(self, kind: Kind, width: int, *inputs: Recorded, **weights: Unpack[Weights]) -> Recorded:
        """Write a call down; answers the array that it makes."""
        self.asked = self.asked or kind == "gather"
        out = Recorded(len(self.calls), 0, width)
        self.calls.append(Call(kind, out, inputs, asked=self.asked, **weights))
        return out


def fused(calls: list[Call]) -> list[Call]:
    """The same list with norms, gates, biases and residual sums taken into the linear layers beside them.

    A norm or a gate that only one linear layer reads is made row by row as that layer's input; a product that is only
    added to something, or has only a bias added, gets the sum where it is made.
    """
    uses = Counter(read.value for call in calls for read in call.reads)
    made = {call.out.value: call for call in calls}
    taken: set[int] = set()
    for call in calls:
        if call.kind == "linear":
            made[call.out.value] = _with_source(call, made, uses, taken)
        elif call.kind == "add_bias":
            made[call.out.value] = _with_bias(call, made, uses, taken)
        elif call.kind == "add":
            made[call.out.value] = _with_product(call, made, uses, taken)
    return [made[call.out.value] for call in calls if call.out.value not in taken]


def _with_source(call: Call, made: dict[int, Call], uses: Counter[int], taken: set[int]) -> Call:
    (read,) = call.inputs
    maker = made[read.value]
    if maker.kind not in get_args(Joining) or uses[read.value] > 1 or read != maker.out:
        return call
    taken.add(read.value)
    joined = replace(call, inputs=maker.inputs, vector=maker.vector, shift=maker.shift, epsilon=maker.epsilon)
    return replace(joined, source=cast(Joining, maker.kind))


def _with_bias(call: Call, made: dict[int, Call], uses: Counter[int], taken: set[int]) -> Call:
    (product,) = call.inputs
    maker = made[product.value]
    is_plain = maker.kind == "linear" and maker.added is None and maker.bias == -1
    if not is_plain or uses[product.value] > 1 or product != maker.out:
        return call
    taken.add(product.value)
    return replace(maker, out=call.out, bias=call.bias)


def _with_product(call: Call, made: dict[int, Call], uses: Counter[int], taken: set[int]) -> Call:
    for product, other in (call.inputs[::-1], call.inputs):
        maker = made[product.value]
        if maker.kind == "linear" and maker.added is None and uses[product.value] == 1 and product == maker.out:
            taken.add(product.value)
            return replace(maker, out=call.out, added=other)
    return call


def assign_buffers(calls: list[Call]) -> tuple[list[int], dict[int, int]]:
    """Widths of buffers, and which of them holds each array, reusing a buffer once what it held was last read.

    The array that a product is added to may be overwritten by the sum, since each number is read just before.
    """
    last_read = {read.value: index for index, call in enumerate(calls) for read in call.reads}
    widths: list[int] = []
    held: dict[int, int] = {}
    free: list[int] = []
    for index, call in enumerate(calls):
        over = call.added
        if over is not None and last_read[over.value] == index and over.width == call.out.width == _width(over, calls):
            held[call.out.value] = held[over.value]
        else:
            held[call.out.value] = _take(free, widths, call.out.width)
        ended = {read.value for read in call.reads if last_read[read.value] == index}
        free += [held[value] for value in ended if held[value] != held[call.out.value]]
    return widths, held


def _width(read: Recorded, calls: list[Call]) -> int:
    return next(call.out.width for call in calls if call.out.value == read.value)


def _take(free: list[int], widths: list[int], width: int) -> int:
    for buffer in free:
        if widths[buffer] == width:
            free.remove(buffer)
            return buffer
    widths.append(width)
    return len(widths) - 1
