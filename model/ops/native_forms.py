"""The form in which the native memory holds a matrix of stored tensors.

Knows what the kernels run: codes of 4 or 8 bits, d and m for each 32 columns. Always: what is kept stands for the same
weights as in the file; a grid that the kernels cannot run as stored is refused by name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from model.compression.codes import CODED_FORMATS, Codes, codes_of, codes_of_grid
from model.loading.ggml import BLOCK_SIZE
from model.loading.tensor import StoredTensor

WeightType = Literal["int8", "int4"]


@dataclass(frozen=True, slots=True)
class WeightForm:
    """The packed form of a matrix of one or more stored tensors."""

    eight_bits: bool
    centred: bool
    half_scales: bool
    kept: tuple[bool, ...]
    """For each of the tensors whether the form holds its weights as stored; else they are rounded to it."""
    codes: tuple[Codes | None, ...] = ()
    """For each of the tensors what is packed; None: it is rounded. Empty: each is packed from its own blocks."""


def weight_form(parts: Sequence[StoredTensor], weight_type: WeightType) -> WeightForm:
    """How a matrix of these parts is held: as stored where the kernels can, else rounded.

    Raises ValueError for a grid that no kernel runs.
    """
    names = {part.format.name for part in parts}
    is_mixed = len(names) > 1 and not any(part.pruned for part in parts)
    if any(part.grid for part in parts) or (is_mixed and names & CODED_FORMATS.keys()):
        return _form_of_codes(parts, weight_type)
    coded = CODED_FORMATS.get(next(iter(names)))
    if len(names) > 1 or coded is None:
        eight_bits = weight_type == "int8"
        return WeightForm(eight_bits, eight_bits, True, (False,) * len(parts))
    return WeightForm(coded.eight_bits, coded.centred, coded.half_scales, (True,) * len(parts))


def _form_of_codes(parts: Sequence[StoredTensor], weight_type: WeightType) -> WeightForm:
    """One form for all: of 8 bits where one of them needs it, affine where one is not symmetric.

    Floats are rounded to 4 bits with offsets, which lose less than symmetric ones.
    """
    found = [_runnable(part) for part in parts]
    known = [each for each in found if each is not None]
    has_floats = len(known) < len(found)
    eight_bits = any(each.eight_bits for each in known) or (has_floats and weight_type == "int8")
    half_scales = all(each.fits_half for each in known)
    kept = tuple(each is not None for each in found)
    centred = [each.centred(eight_bits) for each in known]
    if (eight_bits or not has_floats) and all(each is not None for each in centred):
        rest = iter(centred)
        return WeightForm(
            eight_bits, True, half_scales, kept, tuple(next(rest) if is_kept else None for is_kept in kept)
        )
    return WeightForm(eight_bits, False, half_scales, kept, tuple(found))


def _runnable(part: StoredTensor) -> Codes | None:
    if part.grid is None:
        return codes_of(part)
    grid = part.grid()
    codes = codes_of_grid(part.name, grid)
    if grid.mask is not None and codes.centred(codes.eight_bits) is None:
        _check_zeros(part.name, codes, grid.mask)
    return codes


def _check_zeros(name: str, codes: Codes, mask: NDArray[np.bool_]) -> None:
    """Kernels round d · code + m once, so a pruned weight is zero only where that is zero before rounding."""
    by_group = codes.codes.reshape(*codes.d.shape, BLOCK_SIZE).astype(np.float64)
    weights = codes.d.astype(np.float64)[..., None] * by_group + codes.m.astype(np.float64)[..., None]
    if weights.reshape(mask.shape)[~mask].any():
        raise ValueError(f"{name} has pruned weights that are zero only when products are rounded to float32")
