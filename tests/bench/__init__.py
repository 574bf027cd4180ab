"""Measuring scripts: each is one command that remakes figures of the documentation (`python -m tests.bench.NAME`)."""
