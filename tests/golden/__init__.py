"""Digests of what the native kernels give, kept for every `NUMERIC_VERSION`."""
