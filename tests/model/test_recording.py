"""The recorded decoder: what is fused, and which arrays share memory."""

import pytest

from model.loading.checkpoint import Checkpoint
from model.ops.native_ops import NativeOps
from model.ops.recording import Call, Kind, Recorded, Recording, assign_buffers, fused
from model.transformer import ModelWeights, Transformer
from tests.tiny_families import CONFIGS, family_checkpoint

HEAD = 99


def layer(recording: Recording) -> None:
    """One feed-forward layer with a residual sum, between an embedding and a head."""
    hidden = recording.add("embed", 8, matrix=0)
    normed = recording.add("rms_norm", 8, hidden, vector=0, epsilon=1e-5)
    both = recording.add("linear", 32, normed, matrix=1)
    gate, up = both.__class__(both.value, 0, 16), both.__class__(both.value, 16, 16)
    product = recording.add("linear", 8, recording.add("silu_multiply", 16, gate, up), matrix=2)
    hidden = recording.add("add", 8, hidden, product)
    recording.add("linear", HEAD, recording.add("gather", 8, hidden), matrix=0)


def recorded() -> Recording:
    recording = Recording()
    layer(recording)
    return recording


def test_norms_gates_and_sums_join_the_linear_layers_beside_them() -> None:
    calls = fused(recorded().calls)

    assert [(call.kind, call.source) for call in calls] == [
        ("embed", "plain"),
        ("linear", "rms_norm"),
        ("linear", "silu_multiply"),
        ("gather", "plain"),
        ("linear", "plain"),
    ]
    assert calls[2].added == calls[0].out


def test_a_norm_that_two_calls_read_is_made_once_for_both() -> None:
    recording = Recording()
    normed = recording.add("rms_norm", 8, recording.add("embed", 8, matrix=0), vector=0)
    left = recording.add("linear", 8, normed, matrix=1)
    right = recording.add("linear", 8, normed, matrix=2)
    recording.add("linear", 9, recording.add("gather", 8, recording.add("add", 8, left, right)), matrix=0)

    calls = fused(recording.calls)

    assert [call.kind for call in calls] == ["embed", "rms_norm", "linear", "linear", "gather", "linear"]
    assert calls[3].added == calls[2].out


def test_only_what_follows_the_gather_works_on_the_asked_rows() -> None:
    assert [call.asked for call in fused(recorded().calls)] == [False, False, False, True, True]


def test_a_buffer_is_reused_once_what_it_held_was_read() -> None:
    recording = Recording()
    for _ in range(3):
        layer(recording)
    calls = fused(recording.calls)

    widths, _ = assign_buffers(calls)

    assert sorted(width for width in widths if width != HEAD) == [8, 8, 32]


def test_no_array_is_overwritten_before_its_last_reader() -> None:
    calls = fused(recorded().calls)
    _, held = assign_buffers(calls)
    contents: dict[int, int] = {}
    for call in calls:
        assert [contents[held[read.value]] for read in call.reads] == [read.value for read in call.reads]
        contents[held[call.out.value]] = call.out.value


def test_a_bias_and_a_sum_behind_it_join_the_product() -> None:
    recording = Recording()
    hidden = recording.add("embed", 8, matrix=0)
    normed = recording.add("layer_norm", 8, hidden, vector=0, shift=1, epsilon=1e-5)
    up = recording.add("add_bias", 32, recording.add("linear", 32, normed, matrix=1), bias=2)
    down = recording.add("linear", 8, recording.add("gelu", 32, up), matrix=2)
    recording.add("add", 8, hidden, recording.add("add_bias", 8, down, bias=3))

    _, first, second = fused(recording.calls)

    assert ("linear", "layer_norm", 0, 1, 2) == (first.kind, first.source, first.vector, first.shift, first.bias)
    assert ("linear", "gelu", 3, hidden) == (second.kind, second.source, second.bias, second.added)


def test_a_bias_that_comes_after_a_sum_stays_behind_it() -> None:
    """Rounded sums depend on their order."""
    recording = Recording()
    hidden = recording.add("embed", 8, matrix=0)
    total = recording.add("add", 8, hidden, recording.add("linear", 8, hidden, matrix=1))
    recording.add("add_bias", 8, total, bias=0)

    assert ["embed", "linear", "add_bias"] == [call.kind for call in fused(recording.calls)]


def test_a_second_bias_stays_behind_the_first() -> None:
    recording = Recording()
    product = recording.add("linear", 8, recording.add("embed", 8, matrix=0), matrix=1)
    recording.add("add_bias", 8, recording.add("add_bias", 8, product, bias=0), bias=1)

    assert [-1, 0, 1] == [call.bias for call in fused(recording.calls)]


def test_a_product_with_two_readers_keeps_its_numbers_without_the_bias() -> None:
    recording = Recording()
    product = recording.add("linear", 8, recording.add("embed", 8, matrix=0), matrix=1)
    recording.add("add", 8, recording.add("add_bias", 8, product, bias=0), product)

    assert ["embed", "linear", "add_bias", "add"] == [call.kind for call in fused(recording.calls)]


def test_a_part_of_a_product_has_its_bias_added_apart() -> None:
    recording = Recording()
    product = recording.add("linear", 8, recording.add("embed", 8, matrix=0), matrix=1)
    recording.add("add_bias", 4, Recorded(product.value, 4, 4), bias=0)

    assert ["embed", "linear", "add_bias"] == [call.kind for call in fused(recording.calls)]


def test_the_norm_of_a_product_is_made_before_it_is_added() -> None:
    """As Gemma norms what attention and the feed-forward layer give."""
    recording = Recording()
    hidden = recording.add("embed", 8, matrix=0)
    product = recording.add("linear", 8, hidden, matrix=1)
    recording.add("add", 8, hidden, recording.add("rms_norm", 8, product, vector=0, epsilon=1e-5))

    assert ["embed", "linear", "rms_norm", "add"] == [call.kind for call in fused(recording.calls)]


@pytest.mark.parametrize("gate", ["gelu_multiply", "silu_multiply"])
def test_a_gate_joins_the_layer_that_reads_it(gate: Kind) -> None:
    recording = Recording()
    both = recording.add("linear", 16, recording.add("embed", 8, matrix=0), matrix=1)
    gated = recording.add(gate, 8, Recorded(both.value, 0, 8), Recorded(both.value, 8, 8))
    recording.add("linear", 8, gated, matrix=2)

    assert ["plain", "plain", gate] == [call.source for call in fused(recording.calls)]


def test_every_array_of_every_family_is_read_as_it_was_made() -> None:
    for name in CONFIGS:
        calls = recorded_calls(family_checkpoint(name))
        _, held = assign_buffers(calls)
        contents: dict[int, int] = {}
        for call in calls:
            assert [read.value for read in call.reads] == [contents[held[read.value]] for read in call.reads]
            contents[held[call.out.value]] = call.out.value


def test_the_program_of_a_gpt2_has_no_bias_of_its_own_pass() -> None:
    kinds = [call.kind for call in recorded_calls(family_checkpoint("gpt2"))]

    layer = ["linear", "attend", "linear", "linear", "linear"]
    assert ["embed", "embed_positions", "add", *layer, *layer, "gather", "linear"] == kinds


def test_the_program_of_a_gemma_norms_heads_and_outputs() -> None:
    kinds = [call.kind for call in recorded_calls(family_checkpoint("gemma3", layer_count=1))]

    attention = ["linear", "head_norm", "head_norm", "attend", "linear", "rms_norm", "add"]
    assert ["embed", *attention, "linear", "linear", "rms_norm", "add", "gather", "linear"] == kinds


def test_windows_and_rotations_are_those_of_the_layers() -> None:
    calls = recorded_calls(family_checkpoint("gemma3"))

    attention = [call for call in calls if call.kind == "attend"]
    assert [24, 24, None, 24] == [call.window for call in attention]
    assert [0, 0, 1, 0] == [call.rope for call in attention]


def recorded_calls(checkpoint: Checkpoint) -> list[Call]:
    """What the native op set records of a model."""
    ops = NativeOps(checkpoint.config, 1)
    transformer = Transformer(ops, checkpoint.config, ModelWeights.load(ops, checkpoint))
    transformer.forward()
    return fused(ops.recording.calls)
