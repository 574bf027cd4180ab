"""Tensors, tokens and decoding. Knows nothing of HTTP, pydantic or Python threads."""
