"""Hostile input over real sockets, beside a caller whose answers must not change."""
