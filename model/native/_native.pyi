def philox_uniform(seed: int, sample: int, position: int) -> float:
    """A float64 in [0, 1) that depends on these three numbers only."""
