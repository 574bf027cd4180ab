"""What an op set must offer: weights, the operations of a decoder, and the choice of tokens.

The transformer is written once over this protocol. An op set owns its arrays, its weights in whatever form it
likes, and the storage behind the key and value pages.
Always: the calls that a decoder makes do not depend on the batch, so an op set may record them once and replay them.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from model.batch import Batch
from model.decoding.params import Draw, Drawn, Ranked, Ranking, Score
from model.loading.tensor import StoredTensor

Array = TypeVar("Array")
Matrix = TypeVar("Matrix")
Vector = TypeVar("Vector")


class OpSet(Protocol[Array, Matrix, Vector]):
    """The operations of a decoder over one batch. Arrays are [rows, width] unless said otherwise."""

    @property
    def page_count(self) -> int:
        """Pages that it has storage for, numbered from 0."""

    def matrix(self, *parts: StoredTensor) -> Matrix:
        """A weight matrix [outputs, inputs]; several parts are stacked along the outputs."""

    def vector(self, *parts: StoredTensor) -> Vector:
        """A gain or a bias [width]; several parts are joined."""

    def embed(self, table: Matrix, scale: float = 1.0) -> Array:
        """The table's rows for the token ids of the batch, times `scale`."""

    def embed_positions(self, table: Matrix) -> Array:
        """The table's rows for the positions of the batch's rows."""

    def rms_norm(self, x: Array, gain: Vector, epsilon: float) -> Array:
        """x / sqrt(mean(x²) + ε) · gain, row by row."""

    def layer_norm(self, x: Array, gain: Vector, bias: Vector, epsilon: float) -> Array:
        """(x − mean(x)) / sqrt(variance(x) + ε) · gain + bias, row by row (Ba et al. 2016)."""

    def head_norm(self, x: Array, gain: Vector, epsilon: float) -> Array:
        """`rms_norm` of each head of each row: of consecutive columns, as many as the gain has."""

    def linear(self, x: Array, weight: Matrix) -> Array:
        """x · weightᵀ: [rows, inputs] → [rows, outputs]."""

    def add_bias(self, x: Array, bias: Vector) -> Array:
        """x + bias, row by row."""

    def split(self, x: Array, widths: tuple[int, ...]) -> tuple[Array, ...]:
        """Cut the columns of x into pieces of these widths."""

    def store(self, layer: int, keys: Array, values: Array) -> None:
        """Rotate the keys by their rows' positions, where the layer rotates, and write keys and values into pages."""

    def attend(self, layer: int, queries: Array) -> Array:
        """Rotate the queries likewise and attend causally over the pages.

        The row at position t sees 0 … t, or what the layer's window leaves of them.
        """

    def silu_multiply(self, gate: Array, up: Array) -> Array:
        """gate · sigmoid(gate) · up."""

    def gelu_multiply(self, gate: Array, up: Array) -> Array:
        """gelu(gate) · up."""

    def gelu(self, x: Array) -> Array:
        """x · (1 + tanh(√(2/π) · (x + 0.044715 · x³))) / 2 (Hendrycks and Gimpel 2016)."""

    def add(self, x: Array, y: Array) -> Array: ...

    def asked_rows(self, x: Array) -> Array:
        """Only the rows whose logits are wanted, in batch order."""

    def program(self, forward: Callable[[], Array]) -> "Program":
        """Make `forward`, which calls the operations above, runnable on any batch."""

    def choose(self, logits: Any, draws: Sequence[Draw]) -> list[Drawn]:
        """One token for each draw. Logits are what a program's `run` returned last; they are not changed."""

    def rank(self, logits: Any, rankings: Sequence[Ranking]) -> list[tuple[Ranked, ...]]:
        """The likeliest tokens for each ranking: logit after edits descending, id ascending.

        Fewer where fewer are left; a row with a NaN or +∞, before or after its edits, gives none.
        """

    def score(self, logits: Any, scores: Sequence[Score]) -> list[Drawn]:
        """The log-probability of each given token; `token_id` is None where its row holds a NaN or +∞."""

    def read_logits(self, logits: Any, rows: Sequence[int]) -> NDArray[np.float32]:
        """These rows as they stand, copied: [rows, vocabulary]."""


class Program(Protocol):
    """A decoder bound to its weights and its pages."""

    def run(self, batch: Batch) -> Any:
        """Carry out the copies, write every row's keys and values, return logits [asked rows, vocabulary]."""
