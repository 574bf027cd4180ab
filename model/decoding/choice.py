"""What a step asks of the sampler, and what the sampler answers. One shape for every decoding rule.

Always: sample i of a request with seed s draws its t-th generated token with the uniform of (s, i, t).
"""

from dataclasses import dataclass

from model.decoding.params import DecodingParameters, Drawn


@dataclass(frozen=True, slots=True)
class Ask:
    """What one request wants from the rows it asked for in this step."""

    rows: tuple[int, ...]
    """Which rows of the logits are its sequences', in their order."""
    parents: tuple[int, ...]
    """For each sequence after this step: which of `rows` it continues. After a prompt of n samples: (0, … 0)."""
    sample_indices: tuple[int, ...]
    """For each sequence after this step: its sample index."""
    generated: int
    """Tokens that each of its sequences has generated so far."""
    parameters: DecodingParameters


@dataclass(frozen=True, slots=True)
class Choice:
    """What a rule picked for one request: which sequences go on, and with which tokens."""

    parents: tuple[int, ...]
    """For each sequence after this step: which of the asking sequences it continues."""
    tokens: tuple[tuple[Drawn, ...], ...]
    """For each sequence after this step: the tokens it gains, one or more."""
