"""What the compiled engine refuses: whatever it is handed, a ValueError, and the next call goes on as before."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from model.native import _native

WIDTH, VOCABULARY, CONTEXT, PAGES = 64, 72, 288, 12
HEADS, KV_HEADS, HEAD_WIDTH = 4, 2, 8
QUERIES, KEYS = HEADS * HEAD_WIDTH, KV_HEADS * HEAD_WIDTH
SHAPE: dict[str, Any] = {
    "layers": 1,
    "heads": HEADS,
    "kv_heads": KV_HEADS,
    "head_width": HEAD_WIDTH,
    "context": CONTEXT,
    "pages": PAGES,
    "kv_type": "int8",
    "isa": "auto",
    "threads": 2,
}
BUFFERS = [WIDTH, QUERIES + 2 * KEYS, QUERIES, WIDTH, VOCABULARY]
NO_VIEW = (-1, 0, 0)
LARGEST, LEAST = 2**31 - 1, -(2**31)
ONE_ROW: dict[str, Any] = {"token_ids": [5], "segments": [(0, 1, 1)], "pages": [0], "asked": [0], "copies": []}
DRAW: tuple[Any, ...] = (0, 1.0, 0, 1.0, 0.0, 0.5, None, "model", 3, False)
"""Row, temperature, top_k, top_p, min_p, uniform, changes, which log-probabilities, how many, whether to explain."""

HOSTILE_BATCHES: list[dict[str, Any]] = [
    *({"token_ids": ids} for ids in ([], [-1], [VOCABULARY], [LARGEST], [LEAST], [5, 5])),
    *(
        {"segments": [segment]}
        for segment in [
            (-1, 1, 1),
            (LEAST, 1, 1),
            (LARGEST, 1, 1),
            (32, 1, 1),
            (CONTEXT, 1, 1),
            (0, 0, 1),
            (0, -1, 1),
            (0, LARGEST, 1),
            (LARGEST, LARGEST, 1),
            (0, 1, 0),
            (0, 1, -1),
            (0, 1, 2),
            (0, 1, LARGEST),
        ]
    ),
    {"segments": []},
    {"segments": [(0, 1, 1)] * 2},
    *({"pages": pages} for pages in ([], [-1], [PAGES], [LARGEST], [LEAST], [0, 1])),
    *({"asked": asked} for asked in ([-1], [1], [LARGEST], [0, 0], [0] * 100)),
    *(
        {"copies": [copy]}
        for copy in [(-1, 0, 1), (0, PAGES, 1), (LARGEST, 0, 1), (0, 1, 0), (0, 1, 33), (0, 1, LEAST)]
    ),
    {"token_ids": [5, 6], "segments": [(0, 1, 1), (1, 1, 1)], "pages": [4, 4]},
    {"token_ids": [5] * 40, "segments": [(0, 40, 2)], "pages": [4, 4]},
]

HOSTILE_DRAWS: list[tuple[Any, ...]] = [
    *((row, *DRAW[1:]) for row in (-1, 1, LARGEST)),
    *((0, temperature, *DRAW[2:]) for temperature in (-1.0, float("nan"), float("inf"))),
    *((*DRAW[:2], top_k, *DRAW[3:]) for top_k in (-1, LEAST)),
    *((*DRAW[:3], top_p, *DRAW[4:]) for top_p in (0.0, -1.0, 1.1, float("nan"))),
    *((*DRAW[:4], min_p, *DRAW[5:]) for min_p in (-0.1, 1.1, float("nan"))),
    *((*DRAW[:5], uniform, *DRAW[6:]) for uniform in (-0.1, 1.0, float("nan"))),
    *((*DRAW[:7], of, *DRAW[8:]) for of in ("everything", "Model")),
    *((*DRAW[:8], top, False) for top in (-1, VOCABULARY + 1, LARGEST)),
]


def array(type: type[np.generic], *numbers: float) -> NDArray[Any]:
    return np.array(numbers, dtype=type)


def edits(**given: Any) -> tuple[Any, ...]:
    """A bias of token 5 and a penalty of token 7, changed as given."""
    plain = {
        "bias_ids": array(np.int32, 5),
        "bias_values": array(np.float32, 1.5),
        "seen_ids": array(np.int32, 7),
        "seen_counts": array(np.int32, 2),
        "repetition": 1.2,
        "presence": 0.1,
        "frequency": 0.1,
    }
    return tuple((plain | given).values())


HOSTILE_CHANGES: dict[str, tuple[Any, ...]] = {
    **{f"banned {ids}": (ids, None, None) for ids in ([-1], [VOCABULARY], [3, LARGEST], [LEAST])},
    **{
        f"{name} {id}": ([], edits(**{name: array(np.int32, id)}), None)
        for name in ("bias_ids", "seen_ids")
        for id in (-1, VOCABULARY, LARGEST, LEAST)
    },
    **{
        f"{name} of {count}": ([], edits(**{name: np.ones(count, dtype=type)}), None)
        for name, type in {
            "bias_ids": np.int32,
            "bias_values": np.float32,
            "seen_ids": np.int32,
            "seen_counts": np.int32,
        }.items()
        for count in (0, 2)
    },
    "less than never": ([], edits(seen_counts=array(np.int32, -1)), None),
    **{f"bias {value}": ([], edits(bias_values=array(np.float32, value)), None) for value in (np.nan, np.inf)},
    **{
        f"{name} {value}": ([], edits(**{name: value}), None)
        for name in ("repetition", "presence", "frequency")
        for value in (np.nan, np.inf, -np.inf, 1e39)
    },
    "repetition -1": ([], edits(repetition=-1.0), None),
    **{f"{words} words": ([], None, np.full(words, 2**32 - 1, dtype=np.uint32)) for words in (0, 1, 2, 4, 1000)},
}

HOSTILE_RANKINGS: list[tuple[Any, ...]] = [
    *((row, 1, None) for row in (-1, 1, LARGEST, LEAST)),
    *((0, count, None) for count in (0, -1, LEAST)),
]
HOSTILE_SCORES: list[tuple[Any, ...]] = [
    *((row, 5, 0) for row in (-1, 1, LARGEST, LEAST)),
    *((0, id, 0) for id in (-1, VOCABULARY, LARGEST, LEAST)),
    *((0, 5, top) for top in (-1, VOCABULARY + 1, LARGEST)),
]

HOSTILE_SHAPES: list[dict[str, Any]] = [
    *({"layers": layers} for layers in (0, -1)),
    *({"heads": heads} for heads in (0, -4, 3, 66, LARGEST)),
    *({"kv_heads": kv_heads} for kv_heads in (0, -2, 3)),
    *({"head_width": head_width} for head_width in (0, -8, 12, 264)),
    *({"context": context} for context in (0, -1)),
    {"pages": -1},
    {"layers": LARGEST, "pages": LARGEST, "heads": 1 << 20, "kv_heads": 1 << 20},
    {"kv_type": "int4"},
    {"isa": "sse9"},
]


def random_rows(rows: int, width: int) -> NDArray[np.float32]:
    return np.random.default_rng(rows).standard_normal((rows, width)).astype(np.float32)


def instruction(kind: str, out: tuple[int, int, int], *inputs: tuple[int, int, int], **given: Any) -> Any:
    a, b, c = (*inputs, NO_VIEW, NO_VIEW, NO_VIEW)[:3]
    rest: dict[str, Any] = {"source": "plain", "asked": False, "matrix": -1, "vector": -1, "layer": -1, "epsilon": 1e-5}
    rest |= {"shift": -1, "bias": -1, "rope": -1, "window": None, "scale": 1.0}
    return _native.Instruction(kind=kind, out=out, a=a, b=b, c=c, **rest | given)


def decoder() -> Iterator[Any]:
    """x = embedding; x += W · attention of (rms_norm(x)); logits = table · rms_norm(x) of the rows that ask."""
    x, asking = (0, 0, WIDTH), (3, 0, WIDTH)
    yield instruction("embed", x, matrix=0)
    yield instruction("linear", (1, 0, QUERIES + 2 * KEYS), x, source="rms_norm", matrix=1, vector=0)
    yield instruction(
        "attend", (2, 0, QUERIES), (1, 0, QUERIES), (1, QUERIES, KEYS), (1, QUERIES + KEYS, KEYS), layer=0, rope=0
    )
    yield instruction("linear", x, (2, 0, QUERIES), NO_VIEW, x, matrix=2)
    yield instruction("gather", asking, x, asked=True)
    yield instruction("linear", (4, 0, VOCABULARY), asking, source="rms_norm", asked=True, matrix=0, vector=0)


def make_engine(**given: Any) -> Any:
    engine = _native.Engine(**SHAPE | given)
    for outputs, inputs in ((VOCABULARY, WIDTH), (QUERIES + 2 * KEYS, WIDTH), (WIDTH, QUERIES)):
        matrix = engine.add_matrix(True, True, True, outputs, inputs)
        assert engine.pack_floats(matrix, 0, random_rows(outputs, inputs))
    engine.add_vector(np.ones(WIDTH, dtype=np.float32))
    engine.add_rope(10000.0, None)
    engine.poison_pages()
    engine.load(BUFFERS, list(decoder()))
    return engine


@pytest.fixture(scope="module")
def engine() -> Any:
    return make_engine()


@pytest.mark.parametrize("hostile", HOSTILE_BATCHES, ids=str)
def test_a_hostile_batch_is_refused_and_changes_nothing(engine: Any, hostile: dict[str, Any]) -> None:
    engine.run(**ONE_ROW)
    expected = engine.logits()

    with pytest.raises(ValueError, match=r"\w"):
        engine.run(**ONE_ROW | hostile)

    assert engine.logits().tobytes() == expected.tobytes()
    engine.run(**ONE_ROW)
    assert engine.logits().tobytes() == expected.tobytes()


@pytest.mark.parametrize("hostile", [{"token_ids": [2**31]}, {"pages": ["a"]}, {"segments": [(0, 1)]}, {"asked": None}])
def test_a_batch_of_other_types_is_refused(engine: Any, hostile: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        engine.run(**ONE_ROW | hostile)


@pytest.mark.parametrize("hostile", HOSTILE_DRAWS, ids=str)
def test_a_hostile_draw_is_refused(engine: Any, hostile: tuple[Any, ...]) -> None:
    engine.run(**ONE_ROW)
    expected = engine.choose([DRAW])

    with pytest.raises(ValueError, match=r"\w"):
        engine.choose([DRAW, hostile])

    assert engine.choose([DRAW]) == expected


@pytest.mark.parametrize("changes", HOSTILE_CHANGES.values(), ids=HOSTILE_CHANGES)
def test_hostile_changes_of_a_row_are_refused(engine: Any, changes: tuple[Any, ...]) -> None:
    engine.run(**ONE_ROW)

    with pytest.raises(ValueError, match=r"\w"):
        engine.choose([DRAW, (*DRAW[:6], changes, *DRAW[7:])])
    with pytest.raises(ValueError, match=r"\w"):
        engine.rank([(0, 1, None), (0, 1, changes)])


@pytest.mark.parametrize("hostile", HOSTILE_RANKINGS, ids=str)
def test_a_hostile_ranking_is_refused(engine: Any, hostile: tuple[Any, ...]) -> None:
    engine.run(**ONE_ROW)

    with pytest.raises(ValueError, match=r"\w"):
        engine.rank([hostile])


@pytest.mark.parametrize("hostile", HOSTILE_SCORES, ids=str)
def test_a_hostile_score_is_refused(engine: Any, hostile: tuple[Any, ...]) -> None:
    engine.run(**ONE_ROW)

    with pytest.raises(ValueError, match=r"\w"):
        engine.score([hostile])


@pytest.mark.parametrize(
    "changes", [([], edits(bias_ids="a"), None), ([], edits()[:6], None), ([], None, "a"), ([], None)], ids=str
)
def test_changes_of_other_types_are_refused(engine: Any, changes: tuple[Any, ...]) -> None:
    engine.run(**ONE_ROW)

    with pytest.raises(TypeError):
        engine.choose([(*DRAW[:6], changes, *DRAW[7:])])


def test_arrays_that_nobody_may_write_to_are_read(engine: Any) -> None:
    engine.run(**ONE_ROW)
    arrays = [each for each in edits() if isinstance(each, np.ndarray)]
    mask = np.full(3, 2**32 - 1, dtype=np.uint32)
    for each in [*arrays, mask]:
        each.setflags(write=False)
    given = edits(**dict(zip(("bias_ids", "bias_values", "seen_ids", "seen_counts"), arrays, strict=True)))

    assert engine.rank([(0, 1, ([], given, mask))]) == engine.rank([(0, 1, ([], edits(), None))])


def test_a_chooser_and_an_engine_give_the_same_answers(engine: Any) -> None:
    engine.run(**ONE_ROW)
    chooser, changes = _native.Chooser("auto", 2), ([3], edits(), np.full(3, 0xFFFF0F0F, dtype=np.uint32))
    draws: Any = [DRAW, (*DRAW[:6], changes, "sampled", 5, True)]

    assert chooser.choose(engine.logits(), draws) == engine.choose(draws)
    assert chooser.rank(engine.logits(), [(0, 5, changes)]) == engine.rank([(0, 5, changes)])
    assert chooser.score(engine.logits(), [(0, 5, 2)]) == engine.score([(0, 5, 2)])


@pytest.mark.parametrize("hostile", HOSTILE_SHAPES, ids=str)
def test_a_shape_that_no_kernel_works_on_is_refused(hostile: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        make_engine(**hostile)


@pytest.mark.parametrize("base", [0.0, -1.0, float("nan"), float("inf")])
def test_rotary_positions_without_a_base_are_refused(base: float) -> None:
    with pytest.raises(ValueError, match="base of rotary positions"):
        _native.Engine(**SHAPE).add_rope(base, None)


@pytest.mark.parametrize(("outputs", "inputs"), [(0, 32), (-8, 32), (8, 0), (8, 31), (8, -32), (LARGEST, 32)])
def test_a_linear_layer_that_no_kernel_works_on_is_refused(outputs: int, inputs: int) -> None:
    with pytest.raises(ValueError, match="no linear layer of this shape"):
        _native.Engine(**SHAPE).add_matrix(True, True, True, outputs, inputs)


def test_rows_that_do_not_fit_their_matrix_are_refused() -> None:
    engine = make_engine()
    rows = random_rows(8, WIDTH)
    for matrix, first_row, given in [
        (-1, 0, rows),
        (9, 0, rows),
        (0, -1, rows),
        (0, 65, rows),
        (0, 0, rows[:, :32].copy()),
    ]:
        with pytest.raises(ValueError, match=r"no such weights|do not fit"):
            engine.pack_floats(matrix, first_row, given)
    with pytest.raises(ValueError, match="does not keep F32"):
        engine.pack_blocks(0, 0, "F32", rows.view(np.uint8))
    with pytest.raises(ValueError, match="do not fit"):
        engine.pack_blocks(0, 0, "Q8_0", rows.view(np.uint8))


@pytest.mark.parametrize("change", [{"kind": "divide"}, {"source": "softmax"}])
def test_an_instruction_of_no_known_kind_is_refused(change: dict[str, str]) -> None:
    given = {"kind": "embed", "source": "plain"} | change

    with pytest.raises(ValueError, match=f"is called {next(iter(change.values()))}"):
        instruction(given["kind"], (0, 0, WIDTH), source=given["source"])


def test_a_program_that_names_no_such_weight_is_refused(engine: Any) -> None:
    *first, _ = decoder()
    broken = instruction("linear", (4, 0, VOCABULARY), (3, 0, WIDTH), asked=True, matrix=17)

    with pytest.raises(ValueError, match="no such weights"):
        engine.load(BUFFERS, [*first, broken])


def test_nothing_runs_before_a_program_is_loaded() -> None:
    engine = _native.Engine(**SHAPE)

    with pytest.raises(ValueError, match="no program was loaded"):
        engine.run(**ONE_ROW)
    with pytest.raises(ValueError, match="a row that did not ask"):
        engine.choose([DRAW])
    assert (engine.choose([]), engine.rank([]), engine.score([])) == ([], [], [])
    assert engine.logits().shape == (0, 0)


def test_a_batch_of_nothing_has_no_logits(engine: Any) -> None:
    engine.run([], [], [], [], [])

    assert engine.logits().shape == (0, VOCABULARY)


def test_the_last_position_of_the_context_is_like_any_other(engine: Any) -> None:
    """Whole at once, and its last token alone."""
    ids = [index % VOCABULARY for index in range(CONTEXT)]
    pages = list(range(CONTEXT // 32))
    engine.run(ids, [(0, CONTEXT, len(pages))], pages, [CONTEXT - 1], [])
    expected = engine.logits()

    engine.run(ids[-1:], [(CONTEXT - 1, 1, len(pages))], pages, [0], [])

    assert engine.logits().tobytes() == expected.tobytes()
    with pytest.raises(ValueError, match="leaves the context"):
        engine.run([1], [(CONTEXT, 1, len(pages) + 1)], [*pages, 10], [0], [])


def test_all_tokens_banned_is_no_token(engine: Any) -> None:
    engine.run(**ONE_ROW)

    ((token_id, _, listed, explanation),) = engine.choose(
        [(*DRAW[:6], (list(range(VOCABULARY)), None, None), "model", 3, True)]
    )

    assert (token_id, listed, explanation) == (-1, [], None)
