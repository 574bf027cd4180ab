import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int32]
EditsTuple = tuple[Ids, NDArray[np.float32], Ids, Ids, float, float, float]
ChangesTuple = tuple[list[int], EditsTuple | None, NDArray[np.uint32] | None]
DrawTuple = tuple[int, float, int, float, float, float, ChangesTuple | None, str, int, bool]
RankTuple = tuple[int, int, ChangesTuple | None]
ScoreTuple = tuple[int, int, int]
Numbered = list[tuple[int, float]]
ExplanationTuple = tuple[float, list[tuple[str, int, float, Numbered]]]
DrawnTuple = tuple[int, float, Numbered, ExplanationTuple | None]
RankedTuple = tuple[int, float, float]
View = tuple[int, int, int]

def philox_uniform(seed: int, sample: int, position: int) -> float:
    """A float64 in [0, 1) that depends on these three numbers only."""

def best_isa() -> int:
    """0 scalar, 1 AVX2, 2 AVX-512 with VNNI."""

def round_rows(rows: NDArray[np.float32], eight_bits: bool, centred: bool, half_scales: bool) -> NDArray[np.float32]:
    """What packing makes of rows of floats, as float32 again."""

class Instruction:
    def __init__(
        self,
        kind: str,
        source: str,
        asked: bool,
        out: View,
        a: View,
        b: View,
        c: View,
        matrix: int,
        vector: int,
        layer: int,
        epsilon: float,
        shift: int,
        bias: int,
        rope: int,
        window: int | None,
        scale: float,
    ) -> None: ...

class Chooser:
    """Choices from rows [rows, vocabulary] that are handed over, as an engine makes them from its own."""

    def __init__(self, isa: str, threads: int) -> None: ...
    def choose(self, rows: NDArray[np.float32], draws: list[DrawTuple]) -> list[DrawnTuple]: ...
    def rank(self, rows: NDArray[np.float32], rankings: list[RankTuple]) -> list[list[RankedTuple]]: ...
    def score(self, rows: NDArray[np.float32], scores: list[ScoreTuple]) -> list[DrawnTuple]: ...

class Engine:
    def __init__(
        self,
        layers: int,
        heads: int,
        kv_heads: int,
        head_width: int,
        context: int,
        pages: int,
        kv_type: str,
        isa: str,
        threads: int,
    ) -> None: ...
    @property
    def isa(self) -> str: ...
    @property
    def weight_bytes(self) -> int: ...
    def add_matrix(self, eight_bits: bool, centred: bool, half_scales: bool, outputs: int, inputs: int) -> int: ...
    def inputs_of(self, matrix: int, /) -> int: ...
    def add_vector(self, values: NDArray[np.float32], /) -> int: ...
    def add_rope(self, base: float, stretch: tuple[float, float, float, int] | None) -> int: ...
    def pack_blocks(self, matrix: int, first_row: int, format: str, rows: NDArray[np.uint8], /) -> bool: ...
    def pack_floats(self, matrix: int, first_row: int, rows: NDArray[np.float32], /) -> bool: ...
    def pack_codes(
        self,
        matrix: int,
        first_row: int,
        codes: NDArray[np.uint8],
        d: NDArray[np.float32],
        m: NDArray[np.float32],
        /,
    ) -> bool: ...
    def unpack(self, matrix: int, first_row: int, rows: int, /) -> NDArray[np.float32]: ...
    def poison_pages(self) -> None: ...
    def load(self, buffer_widths: list[int], instructions: list[Instruction]) -> None: ...
    def run(
        self,
        token_ids: list[int],
        segments: list[tuple[int, int, int]],
        pages: list[int],
        asked: list[int],
        copies: list[tuple[int, int, int]],
    ) -> None: ...
    def choose(self, draws: list[DrawTuple]) -> list[DrawnTuple]: ...
    def rank(self, rankings: list[RankTuple]) -> list[list[RankedTuple]]: ...
    def score(self, scores: list[ScoreTuple]) -> list[DrawnTuple]: ...
    def logits(self) -> NDArray[np.float32]: ...
