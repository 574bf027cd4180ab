"""Rotary positions, read from the `config.json` of a Hugging Face folder in its older and its newer form.

Knows no other keys. Older: `rope_theta` beside `rope_scaling`. Newer: `rope_parameters`, which has both, and has them
for each kind of layer where kinds differ. Always: what is no plain scaling and not that of Llama 3 is refused by name.
"""

from model.config import RopeScaling
from model.loading.gguf_config import MAX_CONTEXT
from model.loading.hf_rules import MAX_NAME_BYTES, check_neutral
from model.loading.json_keys import JsonKeys, label

DEFAULT_BASE = 10_000.0
DEFAULT_BASE_BY_LAYER = 1_000_000.0
"""Of full layers, where layers with a window have a base of their own."""
MOST_BASE = 1e12
FULL, SLIDING = "full_attention", "sliding_attention"
_TYPES = ("rope_type", "type")
_SCALING = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")
_PARTIAL = "partial_rotary_factor"

Rope = tuple[float, RopeScaling | None]


def read_rope(keys: JsonKeys, is_by_layer: bool) -> tuple[float, RopeScaling | None, float | None]:
    """Base and scaling of the rotary positions, and where `is_by_layer` the base of layers with a window.

    Raises ModelFileError for a scaling that is not implemented.
    """
    default = DEFAULT_BASE_BY_LAYER if is_by_layer else DEFAULT_BASE
    window_base = keys.number("rope_local_base_freq", 1, MOST_BASE, default=DEFAULT_BASE) if is_by_layer else None
    if "rope_parameters" not in keys:
        base = keys.number("rope_theta", 1, MOST_BASE, default=default)
        scaling = _scaling(keys.object("rope_scaling"), set()) if "rope_scaling" in keys else None
        return base, scaling, window_base
    _check_alone(keys)
    parameters = keys.object("rope_parameters")
    if not is_by_layer:
        return *_parameters(parameters, default), None
    for key in parameters:
        if key not in (FULL, SLIDING):
            parameters.refuse(key, f"is not known: {FULL} and {SLIDING} are")
    base, scaling = _parameters(parameters.object(FULL), default) if FULL in parameters else (default, None)
    if SLIDING in parameters:
        window_base, window_scaling = _parameters(parameters.object(SLIDING), DEFAULT_BASE)
        if window_scaling is not None:
            parameters.refuse(SLIDING, "has a scaling: one of layers with a window would have to be built")
    return base, scaling, window_base


def _check_alone(keys: JsonKeys) -> None:
    for older in ("rope_theta", "rope_scaling", "rope_local_base_freq"):
        if older in keys:
            keys.refuse(older, "stands beside rope_parameters, which says the same in a newer form; remove one")


def _parameters(keys: JsonKeys, default_base: float) -> Rope:
    base = keys.number("rope_theta", 1, MOST_BASE, default=default_base)
    return base, _scaling(keys, {"rope_theta"})


def _scaling(keys: JsonKeys, others: set[str]) -> RopeScaling | None:
    """`others`: keys beside those of a scaling."""
    named = {keys.text(key, MAX_NAME_BYTES) for key in _TYPES if key in keys} or {"default"}
    if len(named) > 1:
        keys.refuse("type", "and rope_type differ")
    kind = named.pop()
    if kind not in ("default", "llama3"):
        keys.refuse(_TYPES[0], f"is {label(kind)}: this scaling would have to be built; llama3's is")
    check_neutral(keys, _PARTIAL, (1,), "rotary positions of a part of each head")
    known = {*_TYPES, _PARTIAL, *others, *(_SCALING if kind == "llama3" else ())}
    for key in keys:
        if key not in known:
            keys.refuse(key, f"is not known beside the scaling {kind}")
    return _llama3(keys) if kind == "llama3" else None


def _llama3(keys: JsonKeys) -> RopeScaling:
    low = keys.number("low_freq_factor", 1e-6, 1e6)
    high = keys.number("high_freq_factor", 1e-6, 1e6)
    if high <= low:
        keys.refuse("high_freq_factor", "is not above low_freq_factor")
    return RopeScaling(
        factor=keys.number("factor", 1, 1e6),
        low_frequency_factor=low,
        high_frequency_factor=high,
        original_context_length=keys.integer("original_max_position_embeddings", 1, MAX_CONTEXT),
    )
