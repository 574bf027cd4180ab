"""What Llama 3 does to rotary frequencies so that positions reach further.

Knows no tensors and no op sets. Always: without a scaling nothing is divided.
"""

import math

import numpy as np
from numpy.typing import NDArray

from model.config import ModelConfig, RopeScaling


def frequency_factors(config: ModelConfig, scaling: RopeScaling | None) -> NDArray[np.float64]:
    """What the rotary frequency base^(−2i/d) of each pair i is divided by, [head_width / 2].

    Long waves are stretched by the factor, short ones left alone, and those between interpolated in frequency.
    """
    if scaling is None:
        return np.ones(config.head_width // 2)
    exponents = np.arange(0, config.head_width, 2) / config.head_width
    wave_lengths = 2 * math.pi * config.rope_base**exponents
    turns = scaling.original_context_length / wave_lengths
    low, high = scaling.low_frequency_factor, scaling.high_frequency_factor
    smooth = np.clip((turns - low) / (high - low), 0, 1)
    return 1 / ((1 - smooth) / scaling.factor + smooth)
