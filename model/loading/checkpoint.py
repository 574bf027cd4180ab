"""What a model file says, whatever its format: configuration, weights, vocabulary, template and defaults.

Knows no file formats and no op sets. Always: every value was checked by the loader that made it.

Tensor names, the keys of `Checkpoint.tensors`, are those of `loading/shapes.py`; `head` is absent where the embedding
is the head.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

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


SPACE_MARK = "\N{LOWER ONE EIGHTH BLOCK}"
"""What stands for a space in vocabularies of SentencePiece."""
VocabularyForm = Literal["byte_level", "sentencepiece", "byte_fallback"]
"""How tokens are spelled and how text becomes tokens.

`byte_level`: BPE by merges over bytes, spelled in the byte alphabet of GPT-2, within the words of a pre-tokenizer.
`sentencepiece`: BPE by scores over characters, "▁" standing for a space; a character without a piece becomes the byte
tokens "<0x00>" to "<0xFF>". `byte_fallback`: spelled as `sentencepiece`, and joined by merges.
"""


@dataclass(frozen=True, slots=True)
class Vocabulary:
    """Tokens and how text becomes them: `tokens[i]` is the spelling of id i."""

    pre_tokenizer: str
    """Its name where the form is `byte_level`; empty elsewhere."""
    tokens: tuple[str, ...]
    merges: tuple[str, ...]
    """Each "left right", most frequent first; none where the form is `sentencepiece`."""
    control_token_ids: frozenset[int]
    user_defined_token_ids: frozenset[int]
    """Tokens that are found in text before anything is joined, spelled as they stand there."""
    eos_token_ids: frozenset[int]
    bos_token_id: int | None = None
    adds_bos: bool = False
    form: VocabularyForm = "byte_level"
    scores: tuple[float, ...] = ()
    """Of each token, float32, the highest joined first; empty where the form is not `sentencepiece`."""
    unused_token_ids: frozenset[int] = frozenset()
    """No text: ids that stand for nothing, such as rows that only fill the embedding up."""
    byte_token_ids: frozenset[int] = frozenset()
    """Spelled "<0x00>" to "<0xFF>", one for each byte; empty where the form is `byte_level`."""
    adds_space_prefix: bool = False
    """Whether a space is put before each text; never where the form is `byte_level`."""
    ignores_merges: bool = False
    """Whether a word that is a token becomes that token, whatever the merges say."""


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
