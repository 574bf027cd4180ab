"""Which tensors a decoder of each family has, by our names, and their shapes. Knows no files and no op sets.

Always: names come in the order in which layers run, and only `head` may be absent from a model.
"""

from model.config import ModelConfig
from model.loading.checkpoint import layer_prefix

Shapes = dict[str, tuple[int, ...]]


def decoder_shapes(config: ModelConfig) -> Shapes:
    """The shape of every tensor that a model with this configuration may have, by our names."""
    width, family = config.width, config.family
    shapes: Shapes = {"embedding": (config.vocabulary_size, width)}
    if family.has_learned_positions:
        shapes["position_embedding"] = (config.context_length, width)
    shapes["output_norm"] = (width,)
    if family.has_layer_norms:
        shapes["output_norm_bias"] = (width,)
    shapes["head"] = (config.vocabulary_size, width)
    layer = layer_shapes(config)
    return shapes | {f"{layer_prefix(i)}{part}": layer[part] for i in range(config.layer_count) for part in layer}


def layer_shapes(config: ModelConfig) -> Shapes:
    """Of one decoder layer, by the part of their names behind `layers.{i}.`."""
    width, inner, family = config.width, config.feed_forward_width, config.family
    shapes: Shapes = {
        "attention_norm": (width,),
        "query": (config.query_width, width),
        "key": (config.kv_width, width),
        "value": (config.kv_width, width),
        "attention_output": (width, config.query_width),
        "feed_forward_norm": (width,),
        **({} if family.gate == "none" else {"gate": (inner, width)}),
        "up": (inner, width),
        "down": (width, inner),
    }
    if family.has_head_norms:
        shapes |= {"query_norm": (config.head_width,), "key_norm": (config.head_width,)}
    if family.has_output_norms:
        shapes |= {"attention_output_norm": (width,), "feed_forward_output_norm": (width,)}
    biased = ["query", "key", "value"] if family.has_input_biases else []
    if family.has_all_biases:
        biased = [name for name, shape in shapes.items() if len(shape) > 1]
    if family.has_layer_norms:
        biased += ["attention_norm", "feed_forward_norm"]
    return shapes | {f"{name}_bias": shapes[name][:1] for name in biased}
