"""The OpenAPI document held against a running server."""
