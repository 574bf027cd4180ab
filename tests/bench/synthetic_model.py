"""A random Llama of any size as a GGUF file, and whether the native op set decodes it as fast as its bytes let it.

Always: the same shape, format and seed give the same file; writing keeps no more than one tensor in memory.
"""

import re
import statistics
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import click
import gguf
import numpy as np
from numpy.typing import NDArray

from model.loading.gguf import load_gguf
from model.loading.hub import pull
from service.cli.console import count_bar
from service.op_sets import usable_cores
from tests.bench import machine
from tests.bench.bandwidth import build, machine_rates
from tests.bench.bare_engine import BareEngine
from tests.bench.record import deliver, markdown_table, output_options
from tests.tiny_model import FORMAT_NAMES, FormatName, TinyShape, add_metadata

NAME = "synthetic"
BILLION = TinyShape(
    layers=16,
    width=2048,
    heads=32,
    kv_heads=8,
    head_width=64,
    feed_forward=8192,
    vocabulary=49152,
    context=8192,
    rope_base=500_000.0,
)
"""About 1.07 billion weights, in the proportions of Llama 3.2 1B with a smaller vocabulary."""
ROWS_AT_ONCE = 1024
CONTEXT, STEPS = 16, 4


@dataclass(frozen=True, slots=True)
class TensorPlan:
    """A tensor before it exists."""

    shape: tuple[int, ...]
    kind: gguf.GGMLQuantizationType

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Of the bytes, or of the floats that are stored as they are."""
        if self.kind == gguf.GGMLQuantizationType.F32:
            return self.shape
        return tuple(gguf.quants.quant_shape_to_byte_shape(self.shape, self.kind))

    @property
    def byte_count(self) -> int:
        return prod(self.stored_shape) * (4 if self.kind == gguf.GGMLQuantizationType.F32 else 1)


def plan_of(shape: TinyShape, format: FormatName) -> dict[str, TensorPlan]:
    """Every tensor of the file by its name, in order; gains stay F32."""
    queries, keys, width, inner = (
        shape.heads * shape.head_width,
        shape.kv_heads * shape.head_width,
        shape.width,
        shape.feed_forward,
    )
    layer: Mapping[str, tuple[int, ...]] = {
        "attn_norm": (width,),
        "attn_q": (queries, width),
        "attn_k": (keys, width),
        "attn_v": (keys, width),
        "attn_output": (width, queries),
        "ffn_norm": (width,),
        "ffn_gate": (inner, width),
        "ffn_up": (inner, width),
        "ffn_down": (width, inner),
    }
    table = (shape.vocabulary, width)
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": table,
        **{f"blk.{i}.{part}": of for i in range(shape.layers) for part, of in layer.items()},
        "output_norm": (width,),
        **({} if shape.tied else {"output": table}),
    }
    kinds = gguf.GGMLQuantizationType
    return {f"{name}.weight": TensorPlan(of, kinds["F32" if len(of) == 1 else format]) for name, of in shapes.items()}


def write(path: Path, *, shape: TinyShape = BILLION, format: FormatName = "Q4_1", seed: int = 0) -> None:
    """Write the file, with a bar over its tensors."""
    plans = plan_of(shape, format)
    writer = gguf.GGUFWriter(path, "llama")
    add_metadata(writer, shape, name=f"synthetic-{parameters(plans) / 1e9:.2f}B")
    for name, plan in plans.items():
        dtype = np.dtype(np.float32 if plan.kind == gguf.GGMLQuantizationType.F32 else np.uint8)
        writer.add_tensor_info(name, plan.stored_shape, dtype, plan.byte_count, raw_dtype=plan.kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    with count_bar("tensors", len(plans)) as on_tensor:
        for index, plan in enumerate(plans.values()):
            writer.write_tensor_data(_random(plan, np.random.default_rng((seed, index))))
            on_tensor()
    writer.close()


def parameters(plans: Mapping[str, TensorPlan]) -> int:
    return sum(prod(plan.shape) for plan in plans.values())


def _random(plan: TensorPlan, rng: np.random.Generator) -> NDArray[Any]:
    """Normal weights of deviation 1 / √inputs, stored; gains near 1."""
    if len(plan.shape) == 1:
        return np.float32(1) + np.float32(0.1) * rng.standard_normal(plan.shape, dtype=np.float32)
    outputs, inputs = plan.shape
    stored = np.empty(plan.stored_shape, np.float32 if plan.kind == gguf.GGMLQuantizationType.F32 else np.uint8)
    for first in range(0, outputs, ROWS_AT_ONCE):
        count = min(ROWS_AT_ONCE, outputs - first)
        rows = rng.standard_normal((count, inputs), dtype=np.float32) / np.float32(np.sqrt(inputs))
        stored[first : first + count] = gguf.quants.quantize(rows, plan.kind).view(stored.dtype)
    return stored


def measure(path: Path, program: Path, *, threads: int, rounds: int, seconds: float) -> dict[str, Any]:
    """How long the model takes to load, what it adds to the process, and how fast it decodes beside its bytes."""
    before, started = _own_memory(), time.perf_counter()
    checkpoint = load_gguf(path)
    checked = time.perf_counter()
    engine = BareEngine(checkpoint, sequences=1, room=CONTEXT + STEPS, threads=threads)
    loaded = time.perf_counter()
    engine.prefill(CONTEXT)
    decode, peaks = [], []
    for _ in range(rounds):
        peaks.append(machine_rates(program, threads, seconds)["read_bytes_per_second"])
        decode.append(engine.decode(CONTEXT, steps=STEPS))
    return {
        "model": checkpoint.name,
        "parameters": sum(prod(tensor.shape) for tensor in checkpoint.tensors.values()),
        "file_bytes": path.stat().st_size,
        "weight_bytes": engine.ops.weight_bytes,
        "memory_bytes": _own_memory() - before,
        "check_s": checked - started,
        "load_s": loaded - checked,
        "decode_ms": statistics.median(decode) * 1000,
        "read_bytes_per_second": engine.ops.weight_bytes / statistics.median(decode),
        "machine_read_bytes_per_second": max(peaks),
        "instruction_set": engine.ops.isa,
    }


def _own_memory() -> int:
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    return int(re.findall(r"RssAnon:\s+(\d+) kB", status)[0]) * 1024


def table(figures: dict[str, Any]) -> str:
    headings = (
        "model",
        "weights",
        "held in memory",
        "checked, loaded in",
        "ms for a token",
        "weights read",
        "of memory's rate",
    )
    rows = [
        (
            f"{each['model']}, {each['parameters'] / 1e6:,.0f} M",
            f"{each['weight_bytes'] / 1e6:,.0f} MB",
            f"{each['memory_bytes'] / 1e6:,.0f} MB",
            f"{each['check_s']:.1f}, {each['load_s']:.1f} s",
            f"{each['decode_ms']:.2f}",
            f"{each['read_bytes_per_second'] / 1e9:.1f} GB/s",
            f"{100 * each['read_bytes_per_second'] / each['machine_read_bytes_per_second']:.0f} %",
        )
        for each in figures["models"]
    ]
    note = (
        f"{figures['threads']} threads, {figures['models'][0]['instruction_set']}, one stream after {CONTEXT} tokens, "
        f"medians of {figures['rounds']} rounds. `{figures['command']}`"
    )
    return f"{markdown_table(headings, rows)}\n\n{note}"


@click.group()
def main() -> None:
    """Write a random Llama as a GGUF file, or measure how one loads and decodes."""


@main.command("write")
@click.argument("path", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--format", type=click.Choice(FORMAT_NAMES), default="Q4_1", show_default=True, help="Of all matrices.")
@click.option("--layers", type=click.IntRange(1), default=BILLION.layers, show_default=True)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
def write_command(path: Path, format: FormatName, layers: int, seed: int) -> None:
    """Write a model; 16 layers are about one billion weights.

    \b
    Example:
      python -m tests.bench.synthetic_model write build/billion.gguf
    """
    write(path, shape=replace(BILLION, layers=layers), format=format, seed=seed)
    click.echo(f"{path}: {path.stat().st_size:,} bytes")


@main.command("measure")
@click.option("--format", type=click.Choice(FORMAT_NAMES), default="Q4_1", show_default=True, help="Of all matrices.")
@click.option("--layers", type=click.IntRange(1), default=BILLION.layers, show_default=True)
@click.option("--threads", type=click.IntRange(1), help="Default: the usable cores.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="How often each is measured.")
@click.option("--seconds", type=float, default=0.5, show_default=True, help="For each rate of the machine.")
@output_options
def measure_command(
    format: FormatName, layers: int, threads: int | None, as_json: bool, records: bool, **given: Any
) -> None:
    """Measure a random model, written for this and deleted, beside the default one.

    \b
    Example:
      python -m tests.bench.synthetic_model measure --record
    """
    (program,) = build("bench_machine")
    cores = threads or usable_cores()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "synthetic.gguf")
        write(path, shape=replace(BILLION, layers=layers), format=format)
        models = [measure(each, program, threads=cores, **given) for each in (path, pull())]
    figures = {
        "command": f"python -m tests.bench.synthetic_model measure --rounds {given['rounds']} --record",
        "machine": machine.described(),
        "threads": cores,
        "format": format,
        "rounds": given["rounds"],
        "models": models,
    }
    deliver(NAME, figures, table(figures), as_json=as_json, records=records)


if __name__ == "__main__":
    main()
