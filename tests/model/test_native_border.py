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
    "rope_base": 10000.0,
    "rope_stretch": None,
    "isa": "auto",
    "threads": 2,
}
BUFFERS = [WIDTH, QUERIES + 2 * KEYS, QUERIES, WIDTH, VOCABULARY]
NO_VIEW = (-1, 0, 0)
LARGEST, LEAST = 2**31 - 1, -(2**31)
ONE_ROW: dict[str, Any] = {"token_ids": [5], "segments": [(0, 1, 1)], "pages": [0], "asked": [0], "copies": []}
DRAW: tuple[Any, ...] = (0, 1.0, 0, 1.0, 0.0, 0.5, [], "model", 3)
"""Row, temperature, top_k, top_p, min_p, uniform, banned, which log-probabilities, how many."""

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
    *((*DRAW[:6], banned, *DRAW[7:]) for banned in ([-1], [VOCABULARY], [3, LARGEST])),
    *((*DRAW[:7], of, 3) for of in ("everything", "Model")),
    *((*DRAW[:8], top) for top in (-1, VOCABULARY + 1, LARGEST)),
]

HOSTILE_SHAPES: list[dict[str, Any]] = [
    *({"layers": layers} for layers in (0, -1)),
    *({"heads": heads} for heads in (0, -4, 3, 66, LARGEST)),
    *({"kv_heads": kv_heads} for kv_heads in (0, -2, 3)),
    *({"head_width": head_width} for head_width in (0, -8, 12, 264)),
    *({"context": context} for context in (0, -1)),
    {"pages": -1},
    {"layers": LARGEST, "pages": LARGEST, "heads": 1 << 20, "kv_heads": 1 << 20},
    *({"rope_base": base} for base in (0.0, -1.0, float("nan"), float("inf"))),
    {"kv_type": "int4"},
    {"isa": "sse9"},
]


def random_rows(rows: int, width: int) -> NDArray[np.float32]:
    return np.random.default_rng(rows).standard_normal((rows, width)).astype(np.float32)


def instruction(kind: str, out: tuple[int, int, int], *inputs: tuple[int, int, int], **given: Any) -> Any:
    a, b, c = (*inputs, NO_VIEW, NO_VIEW, NO_VIEW)[:3]
    rest: dict[str, Any] = {"source": "plain", "asked": False, "matrix": -1, "vector": -1, "layer": -1, "epsilon": 1e-5}
    return _native.Instruction(kind=kind, out=out, a=a, b=b, c=c, **rest | given)


def decoder() -> Iterator[Any]:
    """x = embedding; x += W · attention of (rms_norm(x)); logits = table · rms_norm(x) of the rows that ask."""
    x, asking = (0, 0, WIDTH), (3, 0, WIDTH)
    yield instruction("embed", x, matrix=0)
    yield instruction("linear", (1, 0, QUERIES + 2 * KEYS), x, source="rms_norm", matrix=1, vector=0)
    yield instruction(
        "attend", (2, 0, QUERIES), (1, 0, QUERIES), (1, QUERIES, KEYS), (1, QUERIES + KEYS, KEYS), layer=0
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


@pytest.mark.parametrize("hostile", HOSTILE_SHAPES, ids=str)
def test_a_shape_that_no_kernel_works_on_is_refused(hostile: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        make_engine(**hostile)


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
    assert engine.choose([]) == []
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

    ((token_id, _, listed),) = engine.choose([(*DRAW[:6], list(range(VOCABULARY)), "model", 3)])

    assert (token_id, listed) == (-1, [])
