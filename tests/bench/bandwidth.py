"""How near the native op set comes to what the machine can do: weights read, and multiply-adds, in a second.

The machine's own rates come from `tests/native/bench_machine.cpp`, the kernel's alone from `bench_affine.cpp`.
Always: machine, kernel and engine are measured in turn; the machine's rate is the best that any turn saw.
"""

import json
import re
import statistics
import subprocess
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import click

from model.loading.checkpoint import Checkpoint
from model.loading.gguf import load_gguf
from model.loading.hub import pull
from model.ops.native_ops import Isa
from service.cli.console import Failure, count_bar
from service.op_sets import usable_cores
from tests.bench import machine
from tests.bench.bare_engine import BareEngine
from tests.bench.record import deliver, markdown_table, output_options
from tests.source_files import ROOT

NAME = "bandwidth"
BUILD = ROOT / "build" / "native-tests"
CONTEXT, STEPS, PROMPT = 16, 16, 512
GIGA = 1e9


@dataclass(frozen=True, slots=True)
class Work:
    """What one token of a model costs, whatever runs it."""

    layer_multiply_adds: int
    """In all linear layers but the head."""
    head_multiply_adds: int


def work_of(checkpoint: Checkpoint) -> Work:
    sizes = {name: prod(tensor.shape) for name, tensor in checkpoint.tensors.items() if len(tensor.shape) > 1}
    head = sizes.pop("head", sizes["embedding"])
    del sizes["embedding"]
    return Work(sum(sizes.values()), head)


def build(*names: str) -> list[Path]:
    """The benchmarks of the kernels, built where that is still to do."""
    programs = [BUILD / "plain" / name for name in names]
    make = ["make", "--quiet", "--no-print-directory", "-f", "tests/native/Makefile", f"BUILD={BUILD}"]
    if subprocess.run([*make, *map(str, programs)], cwd=ROOT, check=False).returncode:
        raise Failure("the benchmarks in tests/native do not build")
    return programs


def machine_rates(program: Path, threads: int, seconds: float) -> dict[str, Any]:
    """`read_bytes_per_second`, and `multiply_adds_per_second` by instruction set, of that many threads together."""
    answer = subprocess.run([program, str(threads), str(seconds)], capture_output=True, text=True, check=True)
    rates: dict[str, Any] = json.loads(answer.stdout)
    return rates


def kernel_rate(program: Path, threads: int, seconds: float, isa: str, tokens: int) -> float:
    """Multiply-adds a second of the linear layers alone, on random weights."""
    command = [str(program), str(threads), str(seconds), isa, str(tokens)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    return parsed_kernel_rate(answer.stdout, isa, tokens)


def parsed_kernel_rate(output: str, isa: str, tokens: int) -> float:
    """The rate in a line of the benchmark, such as "avx2  512 tokens: linear  200.0 ms ( 271.8 G/s)"."""
    found = re.search(rf"^{isa}\s+{tokens} tokens: linear .*?\(\s*([\d.]+) G/s\)", output, re.MULTILINE)
    if not found:
        raise Failure("bench_affine prints no rate for this instruction set")
    return float(found[1]) * GIGA


def measure(checkpoint: Checkpoint, *, threads: int, isa: Isa, rounds: int, seconds: float) -> dict[str, Any]:
    """All figures; `seconds` for each rate of the machine and the kernel in each round."""
    work = work_of(checkpoint)
    machine_program, kernel_program = build("bench_machine", "bench_affine")
    engine = BareEngine(checkpoint, sequences=1, room=PROMPT, threads=threads, isa=isa)
    peaks, decode, prefill, kernel = [], [], [], []
    with count_bar("rounds", rounds) as on_round:
        for _ in range(rounds):
            peaks.append(machine_rates(machine_program, threads, seconds))
            decode.append(engine.ops.weight_bytes / engine.decode(CONTEXT, steps=STEPS))
            prefill.append((work.layer_multiply_adds * PROMPT + work.head_multiply_adds) / engine.prefill(PROMPT))
            kernel.append(kernel_rate(kernel_program, threads, seconds, engine.ops.isa, PROMPT))
            on_round()
    return {
        "instruction_set": engine.ops.isa,
        "threads": threads,
        "weight_bytes": engine.ops.weight_bytes,
        "machine": {
            "read_bytes_per_second": max(peak["read_bytes_per_second"] for peak in peaks),
            "multiply_adds_per_second": max(peak["multiply_adds_per_second"][engine.ops.isa] for peak in peaks),
        },
        "decode_read_bytes_per_second": statistics.median(decode),
        "prefill_multiply_adds_per_second": statistics.median(prefill),
        "kernel_multiply_adds_per_second": statistics.median(kernel),
    }


def table(figures: dict[str, Any]) -> str:
    rates, peak = figures["rates"], figures["rates"]["machine"]
    rows = [
        _row(
            "decode, one stream: weights read",
            rates["decode_read_bytes_per_second"],
            peak["read_bytes_per_second"],
            "GB/s",
        ),
        _row(
            f"prefill of {PROMPT} tokens, all of it: multiply-adds",
            rates["prefill_multiply_adds_per_second"],
            peak["multiply_adds_per_second"],
            "G/s",
        ),
        _row(
            f"linear layers alone, {PROMPT} rows: multiply-adds",
            rates["kernel_multiply_adds_per_second"],
            peak["multiply_adds_per_second"],
            "G/s",
        ),
    ]
    note = (
        f"{figures['model']}, {rates['weight_bytes'] / 1e6:.0f} MB of weights, {rates['threads']} threads, "
        f"{rates['instruction_set']}, medians of {figures['rounds']} rounds. `{figures['command']}`"
    )
    return f"{markdown_table(('', 'measured', 'the machine', 'share'), rows)}\n\n{note}"


def _row(name: str, rate: float, peak: float, unit: str) -> tuple[str, ...]:
    return name, f"{rate / GIGA:.1f} {unit}", f"{peak / GIGA:.1f} {unit}", f"{100 * rate / peak:.0f} %"


@click.command()
@click.option("--model", type=click.Path(exists=True, path_type=Path), help="GGUF file; default: the default model.")
@click.option("--threads", type=click.IntRange(1), help="Default: the usable cores.")
@click.option("--isa", type=click.Choice(["auto", "avx2", "avx512"]), default="auto", show_default=True)
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="How often each is measured.")
@click.option("--seconds", type=float, default=0.5, show_default=True, help="For each rate of machine and kernel.")
@output_options
def main(model: Path | None, threads: int | None, isa: Isa, as_json: bool, records: bool, **given: Any) -> None:
    """Measure rates of the native op set beside what the machine can do at most.

    \b
    Examples:
      python -m tests.bench.bandwidth --rounds 1
      python -m tests.bench.bandwidth --isa avx2 --json
      python -m tests.bench.bandwidth --record
    """
    checkpoint = load_gguf(model or pull())
    figures = {
        "command": f"python -m tests.bench.bandwidth --rounds {given['rounds']} --record",
        "machine": machine.described(),
        "model": checkpoint.name,
        "rounds": given["rounds"],
        "rates": measure(checkpoint, threads=threads or usable_cores(), isa=isa, **given),
    }
    deliver(NAME, figures, table(figures), as_json=as_json, records=records)


if __name__ == "__main__":
    main()
