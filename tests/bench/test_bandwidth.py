"""Rates beside the machine's own."""

import json
import shutil
from typing import Any

import pytest
from click import ClickException

from tests.bench.bandwidth import Work, build, machine_rates, parsed_kernel_rate, table, work_of
from tests.memory_checkpoint import memory_checkpoint
from tests.tiny_model import TinyShape

PRINTED = """\
2 threads, 97.0 MB of weights
avx2      8 tokens: linear   11.00 ms (  77.2 G/s)  head of   8   1.00 ms
avx512    8 tokens: linear    5.00 ms ( 169.9 G/s)  head of   8   1.00 ms
"""


def test_a_token_costs_every_weight_of_every_layer_once_and_the_head() -> None:
    shape = TinyShape()
    layer = 64 * (64 + 32 + 32) + 64 * 64 + 3 * 64 * 96

    assert Work(shape.layers * layer, 320 * 64) == work_of(memory_checkpoint(shape))


def test_a_separate_head_is_counted_in_place_of_the_embedding() -> None:
    assert work_of(memory_checkpoint(TinyShape())) == work_of(memory_checkpoint(TinyShape(tied=False)))


def test_the_kernels_rate_is_that_of_the_instruction_set() -> None:
    assert (77.2e9, 169.9e9) == (parsed_kernel_rate(PRINTED, "avx2", 8), parsed_kernel_rate(PRINTED, "avx512", 8))


def test_a_missing_rate_is_an_error() -> None:
    with pytest.raises(ClickException, match="no rate"):
        parsed_kernel_rate(PRINTED, "avx2", 512)


def test_shares_are_of_the_machines_rate() -> None:
    rates: dict[str, Any] = {
        "instruction_set": "avx2",
        "threads": 2,
        "weight_bytes": 97e6,
        "machine": {"read_bytes_per_second": 40e9, "multiply_adds_per_second": 200e9},
        "decode_read_bytes_per_second": 30e9,
        "prefill_multiply_adds_per_second": 100e9,
        "kernel_multiply_adds_per_second": 150e9,
    }

    lines = table({"model": "m", "rounds": 1, "command": "c", "rates": json.loads(json.dumps(rates))}).splitlines()

    assert ["75 %", "50 %", "75 %"] == [line.split(" | ")[-1].removesuffix(" |") for line in lines[2:5]]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("make") is None, reason="needs make and a compiler")
def test_the_machine_tells_its_rates() -> None:
    (program,) = build("bench_machine")

    rates = machine_rates(program, 1, 0.01)

    assert 1 == rates["threads"]
    assert rates["read_bytes_per_second"] > 1e8
    assert rates["multiply_adds_per_second"]["avx2"] > 1e9
