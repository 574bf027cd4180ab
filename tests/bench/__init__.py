"""Measuring scripts: each is one command that remakes a figure of the documentation. `python -m tests.bench.NAME --help`."""
