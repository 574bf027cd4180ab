"""What a model file says, whatever its format: configuration, weights, vocabulary, template and defaults.

Knows no file formats and no op sets. Always: every value was checked by the loader that made it.

Tensor names (the keys of `Checkpoint.tensors`): `embedding`, `output_norm`, `head` (absent when tied to the
embedding), and for each layer `layers.{i}.` followed by `attention_norm`, `query`, `key`, `value`,
`attention_output`, `feed_forward_norm`, `gate`, `up` or `down`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from model.config import ModelConfig
from model.loading.tensor import StoredTensor

MAX_TEMPLATE_BYTES = 64 << 10
"""Of a chat template."""


class ModelFileError(Exception):
    """A model file cannot be used: what is wrong, and where in the file when that is known."""

    def __init__(self, reason: str, *, path: Path | None = None, offset: int | None = None) -> None:
        place = f" at byte {offset}" if offset is not None else ""
        super().__init__(f"{path}: {reason}{place}" if path else f"{reason}{place}")
        self.reason = reason
        self.offset = offset


def layer_prefix(index: int) -> str:
    """What the names of the tensors of a decoder layer begin with."""
    return f"layers.{index}."


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """The model's own sampling defaults; None where it names none."""

    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    not_applied: tuple[str, ...] = ()
    """What the model recommends beyond these, as "name value"; it is told, and nothing follows it."""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """A byte-level BPE vocabulary: `tokens[i]` is the spelling of id i in the byte alphabet of GPT-2."""

    pre_tokenizer: str
    tokens: tuple[str, ...]
    merges: tuple[str, ...]
    """Each "left right", most frequent first."""
    control_token_ids: frozenset[int]
    user_defined_token_ids: frozenset[int]
    eos_token_ids: frozenset[int]
    bos_token_id: int | None = None
    adds_bos: bool = False


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model as it was loaded, before any op set has taken its weights."""

    name: str
    sha256: str
    config: ModelConfig
    tensors: Mapping[str, StoredTensor]
    vocabulary: Vocabulary
    chat_template: str | None = None
    defaults: GenerationDefaults = field(default_factory=GenerationDefaults)
    recipe: Mapping[str, Any] | None = None
    """How the weights were compressed, as plain values; None for a model as it was published."""

    def layer(self, index: int) -> dict[str, StoredTensor]:
        """The tensors of one decoder layer, by the part of their names behind `layers.{index}.`."""
        prefix = layer_prefix(index)
        return {name.removeprefix(prefix): each for name, each in self.tensors.items() if name.startswith(prefix)}
