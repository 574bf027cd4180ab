"""Matrices in every block format, those included that the `gguf` package reads and does not write.

Always: the same weights and format give the same bytes, and rows of blocks are rows of the matrix.
"""

import zlib

import gguf
import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.uint8]
SCALES: dict[str, tuple[int, ...]] = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "IQ4_NL": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}
"""Where the float16 scale lies in a block, and the offset or the scale of minima behind it."""
_CENTRES = {"Q2_K": 1.5, "Q4_K": 7.5, "Q5_K": 15.5}
"""The scale of the minima over the other, for random codes that are 0 in the mean."""
UNWRITTEN = ("IQ4_NL", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")
"""Formats that the `gguf` package does not write."""


def random_blocks(format: str, count: int, rng: np.random.Generator) -> Rows:
    """[count, block bytes], every byte random."""
    _, block_bytes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[format]]
    return rng.integers(0, 256, (count, block_bytes), dtype=np.uint8)


def set_scales(format: str, blocks: Rows, values: NDArray[np.float16]) -> None:
    """Put float16 numbers, [blocks, 2], into blocks; of the second column only where the format has a second one."""
    for place, column in zip(SCALES[format], values.T, strict=False):
        blocks[:, place : place + 2] = np.ascontiguousarray(column[:, None]).view(np.uint8)


def dequantised(rows: NDArray[np.generic], format: str) -> NDArray[np.float32]:
    weights: NDArray[np.float32] = gguf.quants.dequantize(rows, gguf.GGMLQuantizationType[format])
    return weights


def stored_rows(weight: NDArray[np.float32], format: str) -> NDArray[np.generic]:
    """What a file holds of a matrix; for a format of `UNWRITTEN` random blocks as large as it."""
    kind = gguf.GGMLQuantizationType[format]
    if format not in UNWRITTEN:
        rows: NDArray[np.generic] = gguf.quants.quantize(np.ascontiguousarray(weight), kind)
        return rows
    rng = np.random.default_rng(zlib.crc32(weight.tobytes()))
    block_size, _ = gguf.GGML_QUANT_SIZES[kind]
    blocks = random_blocks(format, weight.size // block_size, rng)
    ratios = np.array([1.0, _CENTRES.get(format, 0.0)])
    spread = rng.uniform(0.5, 1.5, (len(blocks), 1))
    set_scales(format, blocks, (spread * ratios).astype(np.float16))
    size = float(np.std(weight) / np.std(dequantised(blocks, format)))
    set_scales(format, blocks, (size * spread * ratios).astype(np.float16))
    return blocks.reshape(len(weight), -1)
