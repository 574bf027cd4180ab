"""The table of `/generate`'s fields, made from the schema, and its place in the guide to the API.

Run it as `python -m service.parameter_table docs/api.md` after the schema has changed; a test compares the two.
"""

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from service.field_errors import describe
from service.schemas import GenerateRequest, schema

START, END = "<!-- parameters -->", "<!-- /parameters -->"


def parameter_table() -> str:
    """Markdown: field, type and range, default, meaning."""
    properties: Mapping[str, Mapping[str, Any]] = schema(GenerateRequest)["properties"]
    rows = [(f"`{name}`", describe(field), _default(field), field["description"]) for name, field in properties.items()]
    head = [("field", "type and range", "default", "meaning"), ("---",) * 4]
    return "\n".join(_row(cells) for cells in [*head, *rows])


def with_table(text: str) -> str:
    """The text with the table between its markers. Raises ValueError when a marker is missing."""
    start = text.index(START) + len(START)
    end = text.index(END, start)
    return f"{text[:start]}\n{parameter_table()}\n{text[end:]}"


def _default(field: Mapping[str, Any]) -> str:
    if "x-default" in field:
        return str(field["x-default"])
    default = field.get("default", {})
    return "–" if default is None else f"`{json.dumps(default)}`"


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(with_table(page.read_text(encoding="utf-8")), encoding="utf-8")
