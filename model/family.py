"""What sets the decoders of one family of models apart: norms, biases, gates and positions.

Knows names and parts; knows no sizes, no weights and no files. Always: a family's parts are all that its decoder has,
so a checkpoint with more or fewer tensors is another model.

Sources: Llama (Touvron et al. 2023), Qwen2 and Qwen3 (Yang et al. 2024, 2025), Gemma 3 (Gemma Team 2025), GPT-2
(Radford et al. 2019). Mistral (Jiang et al. 2023) is a Llama, with a window in its first versions.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Gate = Literal["silu", "gelu", "none"]
"""What multiplies the upward projection; with "none" it goes through GELU itself. GELU is its tanh approximation."""


@dataclass(frozen=True, slots=True)
class Family:
    """Defaults are Llama's: RMSNorm before each part, no bias, SwiGLU, rotary positions."""

    name: str
    """As `general.architecture` of a GGUF file says it."""
    gate: Gate = "silu"
    has_input_biases: bool = False
    """On queries, keys and values."""
    has_all_biases: bool = False
    """On every linear layer but the head."""
    has_layer_norms: bool = False
    """LayerNorm, which has a bias, in place of RMSNorm."""
    has_head_norms: bool = False
    """RMSNorm over each head's query and key, before they are rotated."""
    has_output_norms: bool = False
    """A norm on what attention and feed-forward give, before it is added."""
    has_learned_positions: bool = False
    """An embedding of each position in place of rotations."""


FAMILIES: Mapping[str, Family] = {
    family.name: family
    for family in (
        Family("llama"),
        Family("qwen2", has_input_biases=True),
        Family("qwen3", has_head_norms=True),
        Family("gemma3", gate="gelu", has_head_norms=True, has_output_norms=True),
        Family("gpt2", gate="none", has_all_biases=True, has_layer_norms=True, has_learned_positions=True),
    )
}
