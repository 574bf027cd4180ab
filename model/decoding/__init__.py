"""Decoding rules: parameters, filters, the draw, and where a text ends."""
