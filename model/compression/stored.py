"""How the weights of a compressed model lie in a safetensors file: entries of each kind, written and believed.

Knows no folders. Kinds, and the entries of a tensor NAME:

- `grid`: `NAME.codes` (packed, of the weights kept), `NAME.scales`, `NAME.offsets`, `NAME.mask` if some are pruned;
  where every offset is −scale · z with a code z, `NAME.zeros` holds these, packed, in place of the offsets;
- `sparse`: `NAME.values` of the weights kept, and `NAME.mask`;
- `floats`: `NAME` itself;
- `blocks`: `NAME.blocks`, in a block format of ggml.

Always: what is read back has the same bits, and a tensor that is returned is finite and has exactly its entries.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from model.compression.matrix import MOST_BITS, GridMatrix, Mask, Stored
from model.compression.packing import pack_codes, pack_mask, packed_bytes, unpack_codes, unpack_mask
from model.compression.sparse import MATRIX_DIMENSIONS, SparseMatrix
from model.loading.cursor import shown
from model.loading.ggml import F32, FORMAT_BY_NAME, are_finite
from model.loading.safetensors import Block, Entry, Safetensors
from model.loading.tensor import BlockFormat, StoredTensor

Weights = GridMatrix | SparseMatrix | StoredTensor
Description = Mapping[str, Any]
"""Of one tensor, as plain values."""

_DTYPES: Mapping[str, np.dtype[Any]] = {"F16": np.dtype(np.float16), "F32": np.dtype(np.float32)}
FLOAT_TYPES = tuple(_DTYPES)
_FLOATS = ("F32", "F16", "BF16")


@dataclass(frozen=True, slots=True)
class Described:
    """A tensor as it is written: what is said of it, and its entries."""

    description: Description
    blocks: Mapping[str, Block]


def describe(name: str, weights: Weights) -> Described:
    """Raises ValueError for a stored tensor of a format that has no kind here."""
    if isinstance(weights, GridMatrix):
        return _describe_grid(name, weights)
    if isinstance(weights, SparseMatrix):
        return _describe_sparse(name, weights)
    if weights.grid is not None:
        return _describe_grid(name, weights.grid())
    if weights.pruned is not None:
        return _describe_sparse(name, weights.pruned())
    if weights.format.name not in FORMAT_BY_NAME:
        raise ValueError(f"{name} is stored as {weights.format.name}, which a compressed model does not hold")
    return _describe_stored(name, weights)


def _describe_grid(name: str, matrix: GridMatrix) -> Described:
    description = {
        "kind": "grid",
        "shape": [matrix.rows, matrix.columns],
        "bits": matrix.bits,
        "group": matrix.group,
        "offsets": next(name for name, dtype in _DTYPES.items() if dtype == matrix.offsets.dtype),
    }
    codes = matrix.codes if matrix.mask is None else matrix.codes[matrix.mask]
    blocks = {
        f"{name}.codes": _block(pack_codes(codes, matrix.bits)),
        f"{name}.scales": _block(matrix.scales),
    }
    zeros = zero_codes(matrix)
    if zeros is None:
        blocks[f"{name}.offsets"] = _block(matrix.offsets)
    else:
        blocks[f"{name}.zeros"] = _block(pack_codes(zeros, matrix.bits))
    if matrix.mask is not None:
        blocks[f"{name}.mask"] = _block(pack_mask(matrix.mask))
    return Described(description, blocks)


def _describe_sparse(name: str, matrix: SparseMatrix) -> Described:
    description = {"kind": "sparse", "shape": list(matrix.values.shape)}
    values = _block(matrix.values[matrix.mask])
    return Described(description, {f"{name}.values": values, f"{name}.mask": _block(pack_mask(matrix.mask))})


def zero_codes(matrix: GridMatrix) -> NDArray[np.uint8] | None:
    """The code of zero in each group [rows, groups], when `_offsets_of` gives the very offsets of the matrix."""
    zeros = _codes_of_zero(matrix.scales, matrix.offsets, matrix.bits)
    offsets = _offsets_of(matrix.scales, zeros, matrix.offsets.dtype)
    return zeros if offsets.tobytes() == matrix.offsets.tobytes() else None


def _codes_of_zero(scales: Stored, offsets: Stored, bits: int) -> NDArray[np.uint8]:
    """The nearest code to zero in each group; 0 where it is none of the codes."""
    with np.errstate(divide="ignore", invalid="ignore"):  # a group whose scale is 0
        zeros = np.rint(-offsets.astype(np.float64) / scales.astype(np.float64))
    return np.where((zeros >= 0) & (zeros < 1 << bits), zeros, 0).astype(np.uint8)


def _offsets_of(scales: Stored, zeros: NDArray[np.uint8], stored: np.dtype[Any]) -> Stored:
    with np.errstate(over="ignore"):
        offsets: Stored = (-scales.astype(np.float32) * zeros.astype(np.float32)).astype(stored)
    return offsets


def _describe_stored(name: str, tensor: StoredTensor) -> Described:
    format = tensor.format
    if format.name in _FLOATS:
        description: dict[str, Any] = {"kind": "floats", "shape": list(tensor.shape)}
        return Described(description, {name: Block(format.name, tensor.shape, tensor.rows)})
    description = {"kind": "blocks", "shape": list(tensor.shape), "format": format.name}
    shape = (prod(tensor.shape[:-1]), format.row_bytes(tensor.shape[-1]))
    return Described(description, {f"{name}.blocks": Block("U8", shape, tensor.rows)})


def _block(numbers: NDArray[Any]) -> Block:
    dtype = {1: "U8", 2: "F16", 4: "F32"}[numbers.dtype.itemsize]
    return Block(dtype, numbers.shape, lambda: np.ascontiguousarray(numbers).reshape(-1).view(np.uint8))


class StoredWeights:
    """The tensors of a file, each checked when it is asked for; remembers which entries were claimed."""

    def __init__(self, source: Safetensors) -> None:
        self._source = source
        self._claimed: set[str] = set()

    def tensor(self, name: str, description: Any, shape: tuple[int, ...]) -> StoredTensor:
        """Reads and checks all its bytes, and keeps none. Raises ModelFileError."""
        if not isinstance(description, dict):
            self._refuse(name, "is not described by an object")
        if description.get("shape") != list(shape):
            self._refuse(name, f"has shape {shown(str(description.get('shape')))}; expected is {list(shape)}")
        readers = {"grid": self._grid, "sparse": self._sparse, "floats": self._floats, "blocks": self._blocks}
        kind = description.get("kind")
        if not isinstance(kind, str) or kind not in readers:
            self._refuse(name, f"is of kind {shown(str(kind))}; known are {', '.join(readers)}")
        if len(shape) != MATRIX_DIMENSIONS and kind != "floats":
            self._refuse(name, f"is a gain vector of kind {kind}")
        return readers[kind](name, description, shape)

    def check_all_claimed(self) -> None:
        for name in self._source.entries:
            if name not in self._claimed:
                raise self._source.file.error(f"entry {shown(name)} belongs to no tensor")

    def _refuse(self, name: str, reason: str) -> NoReturn:
        raise self._source.file.error(f"tensor {name} {reason}")

    def _claim(self, name: str, entry_name: str, dtypes: tuple[str, ...], shape: tuple[int, ...] | None) -> Entry:
        """`shape` is None for a list of any length."""
        entry = self._source.entries.get(entry_name)
        if entry is None:
            self._refuse(name, f"has no entry {entry_name}")
        if entry.dtype not in dtypes:
            self._refuse(name, f"has {entry_name} of type {entry.dtype}; expected is {' or '.join(dtypes)}")
        if len(entry.shape) != 1 if shape is None else entry.shape != shape:
            self._refuse(name, f"has {entry_name} of shape {entry.shape}; expected is {shape or 'a list'}")
        self._claimed.add(entry_name)
        return entry

    def _field(self, name: str, description: Description, key: str, least: int, most: int) -> int:
        value = description.get(key)
        if type(value) is not int or not least <= value <= most:
            self._refuse(name, f"has {key} {shown(str(value))}; allowed are {least} to {most}")
        return value

    def _grid(self, name: str, description: Description, shape: tuple[int, ...]) -> StoredTensor:
        bits = self._field(name, description, "bits", 1, MOST_BITS)
        group = self._field(name, description, "group", 1, shape[1])
        if shape[1] % group:
            self._refuse(name, f"has groups of {group}, which do not divide {shape[1]} columns")
        scales_shape = (shape[0], shape[1] // group)
        codes = self._claim(name, f"{name}.codes", ("U8",), None)
        scales = self._claim(name, f"{name}.scales", FLOAT_TYPES, scales_shape)
        stored = description.get("offsets")
        if not isinstance(stored, str) or stored not in FLOAT_TYPES:
            self._refuse(name, f"has offsets of type {shown(str(stored))}; allowed are {' and '.join(FLOAT_TYPES)}")
        has_zeros = f"{name}.zeros" in self._source.entries
        offsets = (
            self._claim(name, f"{name}.zeros", ("U8",), (packed_bytes(prod(scales_shape), bits),))
            if has_zeros
            else self._claim(name, f"{name}.offsets", (stored,), scales_shape)
        )
        mask = self._mask_entry(name, shape)

        def read() -> GridMatrix:
            kept = None if mask is None else unpack_mask(self._source.read(mask.name), shape)
            d = self._numbers(scales)
            m = self._offsets(offsets, d, bits, stored) if has_zeros else self._numbers(offsets)
            count = prod(shape) if kept is None else int(kept.sum())
            flat = unpack_codes(self._source.read(codes.name), count, bits)
            restored = flat.reshape(shape) if kept is None else _with_zeros(flat, kept, _codes_of_zero(d, m, bits))
            return GridMatrix(bits, group, restored, d, m, kept)

        self._check(name, lambda: read().dequantised())
        format = replace(F32, name=f"{bits}-bit grid, groups of {group}" + (", pruned" if mask else ""))
        file_bytes = sum(entry.byte_count for entry in (codes, scales, offsets, mask) if entry)
        return StoredTensor(
            name, shape, format, lambda: read().dequantised().view(np.uint8), read, file_bytes=file_bytes
        )

    def _sparse(self, name: str, description: Description, shape: tuple[int, ...]) -> StoredTensor:
        values = self._claim(name, f"{name}.values", FLOAT_TYPES, None)
        mask = self._mask_entry(name, shape)
        if mask is None:
            self._refuse(name, f"has no entry {name}.mask")

        def read() -> SparseMatrix:
            kept = unpack_mask(self._source.read(mask.name), shape)
            if int(kept.sum()) != values.shape[0]:
                raise ValueError(f"{values.shape[0]} values for {int(kept.sum())} weights kept")
            weights: Stored = np.zeros(shape, dtype=_DTYPES[values.dtype])
            weights[kept] = self._numbers(values)
            return SparseMatrix(weights, kept)

        self._check(name, lambda: read().dequantised())
        return StoredTensor(
            name,
            shape,
            replace(F32, name=f"pruned {values.dtype}"),
            lambda: read().dequantised().view(np.uint8),
            pruned=read,
            file_bytes=values.byte_count + mask.byte_count,
        )

    def _floats(self, name: str, description: Description, shape: tuple[int, ...]) -> StoredTensor:
        entry = self._claim(name, name, _FLOATS, shape)
        return self._plain(name, shape, FORMAT_BY_NAME[entry.dtype], entry)

    def _blocks(self, name: str, description: Description, shape: tuple[int, ...]) -> StoredTensor:
        format = FORMAT_BY_NAME.get(str(description.get("format")))
        if format is None or format.name in _FLOATS:
            self._refuse(name, f"has blocks of {shown(str(description.get('format')))}, which are not known")
        if shape[1] % format.block_size:
            self._refuse(name, f"has rows of {shape[1]}, which {format.name} does not divide into blocks")
        return self._plain(
            name, shape, format, self._claim(name, f"{name}.blocks", ("U8",), (shape[0], format.row_bytes(shape[1])))
        )

    def _plain(self, name: str, shape: tuple[int, ...], format: BlockFormat, entry: Entry) -> StoredTensor:
        rows = prod(shape[:-1])
        if not are_finite(format, self._source.read(entry.name).reshape(-1, format.block_bytes)):
            self._refuse(name, "holds a NaN or an infinity")
        return StoredTensor(name, shape, format, lambda: self._source.read(entry.name).reshape(rows, -1))

    def _mask_entry(self, name: str, shape: tuple[int, ...]) -> Entry | None:
        if f"{name}.mask" not in self._source.entries:
            return None
        return self._claim(name, f"{name}.mask", ("U8",), (packed_bytes(prod(shape), 1),))

    def _numbers(self, entry: Entry) -> Stored:
        data = self._source.read(entry.name)
        return (data.view(np.float16) if entry.dtype == "F16" else data.view(np.float32)).reshape(entry.shape)

    def _offsets(self, zeros: Entry, scales: Stored, bits: int, stored: str) -> Stored:
        codes = unpack_codes(self._source.read(zeros.name), scales.size, bits).reshape(scales.shape)
        return _offsets_of(scales, codes, _DTYPES[stored])

    def _check(self, name: str, read: Callable[[], NDArray[np.float32]]) -> None:
        try:
            with np.errstate(over="ignore", invalid="ignore"):
                weights = read()
        except ValueError as error:
            self._refuse(name, f"is not what it says: {error}")
        if not np.isfinite(weights).all():
            self._refuse(name, "holds a NaN or an infinity")


def _with_zeros(kept_codes: NDArray[np.uint8], kept: Mask, zeros: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Codes of all weights: of a pruned one the code of its group's zero, which lies in no file."""
    codes = np.repeat(zeros, kept.shape[1] // zeros.shape[1], axis=1)
    codes[kept] = kept_codes
    return codes
