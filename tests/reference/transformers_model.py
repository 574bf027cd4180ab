"""The model that `transformers` makes of a GGUF file, configuration and weights as it reads them itself."""

from pathlib import Path
from typing import Any

import torch


def transformers_model(path: Path, layer_count: int) -> Any:
    """A `LlamaForCausalLM` in float32 that generates to full length; `layer_count` is what the file must hold."""
    from transformers import LlamaConfig, LlamaForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    load: Any = load_gguf_checkpoint  # it has no annotations
    with torch.device("meta"):
        parameter_names = LlamaForCausalLM(LlamaConfig(num_hidden_layers=layer_count))
    read = load(str(path), return_tensors=True, model_to_load=parameter_names)
    weights = read["tensors"]
    model: Any = LlamaForCausalLM(LlamaConfig(**read["config"]))
    model.load_state_dict({"lm_head.weight": weights["model.embed_tokens.weight"], **weights})
    model.generation_config.eos_token_id = None
    return model.eval()
