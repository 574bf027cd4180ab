"""What the page on constraints shows and names is what a server takes."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from model.decoding.constraint.schema_rules import MAX_DEPTH, MAX_SUBSCHEMAS
from model.decoding.constraint.spec import MAX_CHOICES, MAX_SOURCE_BYTES
from service.constraints import KINDS, NO_END_OF_ITS_OWN
from tests.service.door import Client

PAGE = (Path(__file__).parents[2] / "docs/constraints.md").read_text(encoding="utf-8")
BODIES: list[dict[str, Any]] = [json.loads(body) for body in re.findall(r"-d '([^']*)'", PAGE)]


def test_every_kind_is_shown_once() -> None:
    assert list(KINDS) == [kind for body in BODIES for kind in body["constraint"]]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: next(iter(body["constraint"])))
def test_what_is_shown_is_accepted(body: dict[str, Any]) -> None:
    answer = Client().post("/generate", body)

    assert 200 == answer.status, answer.body


def test_every_clash_is_named() -> None:
    assert [] == [field for field in NO_END_OF_ITS_OWN if f"`{field}`" not in PAGE]


def test_the_limits_are_those_that_hold() -> None:
    written = f"at most 64 KiB; an expression 16 KiB; a schema {MAX_SUBSCHEMAS:,} subschemas, {MAX_DEPTH} deep"

    assert f"{written}; choices {MAX_CHOICES:,}." in " ".join(PAGE.split())
    assert {"json_schema": 64, "regex": 16, "choice": 64, "grammar": 64} == {
        kind: size >> 10 for kind, size in MAX_SOURCE_BYTES.items()
    }
