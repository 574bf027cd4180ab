"""Faults of clients, engines and machines, beside a caller whose answers must not change."""
