"""A fingerprint names what bits depend on, and nothing else."""

from dataclasses import replace
from typing import Any

import pytest

from model.ops import native_ops
from service.op_sets import choose_op_set
from service.settings import Settings
from tests.memory_checkpoint import memory_checkpoint

CHECKPOINT = replace(memory_checkpoint(), sha256="0123456789abcdef" * 4)


def fingerprint(*, sha256: str = CHECKPOINT.sha256, **options: Any) -> str:
    settings = Settings.load({}, {"engine": "native", **options})
    return choose_op_set(settings, replace(CHECKPOINT, sha256=sha256)).fingerprint


@pytest.mark.parametrize("change", [{"sha256": "f" * 64}, {"kv_type": "float16"}, {"weights": "int4"}], ids=str)
def test_it_changes_with_what_bits_depend_on(change: dict[str, str]) -> None:
    assert fingerprint() != fingerprint(**change)


def test_it_changes_with_the_numeric_version(monkeypatch: pytest.MonkeyPatch) -> None:
    before = fingerprint()
    monkeypatch.setattr(native_ops, "NUMERIC_VERSION", native_ops.NUMERIC_VERSION + 1)

    assert before != fingerprint()


@pytest.mark.parametrize(
    "same",
    [
        *({"isa": isa} for isa in ("scalar", "avx2", "avx512")),
        *({"threads": threads} for threads in (1, 2, 64)),
        {"kv_cache_bytes": 1 << 22},
        {"engine": "auto"},
        {"max_sessions": 3},
    ],
    ids=str,
)
def test_it_does_not_change_with_anything_else(same: dict[str, Any]) -> None:
    assert fingerprint() == fingerprint(**same)


def test_an_op_set_that_promises_no_bits_has_another() -> None:
    assert fingerprint() != fingerprint(engine="torch")


def test_it_is_made_of_its_parts() -> None:
    version = native_ops.NUMERIC_VERSION

    assert f"native-{version}-kv-int8-weights-int8-0123456789abcdef" == fingerprint()
