"""Tables of what an answer says of each token: its log-probability, and how it was chosen."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.table import Table
from rich.text import Text


def logprob_table(records: Iterable[Mapping[str, Any]]) -> Table:
    """A row for each generated token, its likeliest alternatives in the last column."""
    table = Table("id", "token", "logprob", "likeliest")
    for record in records:
        likeliest = "  ".join(f"{_quoted(other)} {other['logprob']:.3f}" for other in record["top"])
        table.add_row(str(record["token_id"]), Text(_quoted(record)), f"{record['logprob']:.3f}", Text(likeliest))
    return table


def explanation_table(records: Iterable[Mapping[str, Any] | None]) -> Table:
    """A row for each generated token; the last column says how many candidates each stage left."""
    table = Table("id", "token", "entropy", "uniform", "candidates")
    for record in records:
        if record is not None:
            uniform = "–" if record["uniform"] is None else f"{record['uniform']:.4f}"
            stages = "  ".join(f"{stage['name']} {stage['candidates']}" for stage in record["stages"])
            entropy = f"{record['entropy']:.3f}"
            table.add_row(str(record["token_id"]), Text(_quoted(record)), entropy, uniform, Text(stages))
    return table


def _quoted(record: Mapping[str, Any]) -> str:
    return repr(record["text"])
