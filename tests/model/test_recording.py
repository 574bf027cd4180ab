"""The recorded decoder: what is fused, and which arrays share memory."""

from model.ops.recording import Recording, assign_buffers, fused

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
