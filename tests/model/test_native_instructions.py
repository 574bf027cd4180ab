"""Instructions of every kind: what fits no weights is refused, and embedded rows are scaled."""

from typing import Any

import numpy as np
import pytest

from tests.model.test_native_border import (
    BUFFERS,
    HEAD_WIDTH,
    KEYS,
    LEAST,
    ONE_ROW,
    QUERIES,
    VOCABULARY,
    WIDTH,
    decoder,
    instruction,
    make_engine,
)

ATTEND: dict[str, Any] = {"layer": 0, "rope": 0}
X = (0, 0, WIDTH)
MISFITS: dict[str, Any] = {
    "a bias of another width": lambda: instruction("linear", (1, 0, QUERIES + 2 * KEYS), X, matrix=1, bias=1),
    "a bias that is not there": lambda: instruction("linear", X, X, matrix=1, bias=7),
    "a bias alone, of another width": lambda: instruction("add_bias", (1, 0, 40), (1, 0, 40), bias=0),
    "a bias alone without one": lambda: instruction("add_bias", X, X),
    "a gain of another width": lambda: instruction("layer_norm", X, X, vector=1, shift=0),
    "a shift of another width": lambda: instruction("layer_norm", X, X, vector=0, shift=1),
    "no shift": lambda: instruction("layer_norm", X, X, vector=0),
    "a shift of another width in a source": lambda: instruction(
        "linear", (1, 0, QUERIES + 2 * KEYS), X, source="layer_norm", matrix=1, vector=0, shift=1
    ),
    "heads of another width": lambda: instruction("head_norm", X, X, vector=0),
    "a part of a head": lambda: instruction("head_norm", (0, 0, 12), (0, 0, 12), vector=1),
    "half a gate": lambda: instruction("gelu_multiply", (1, 0, 32), (1, 0, 32), (1, 32, 16)),
    "a gate without up": lambda: instruction("linear", X, X, source="gelu_multiply", matrix=1),
    "gelu of another width": lambda: instruction("gelu", (1, 0, 32), X),
    "fewer positions than the context": lambda: instruction("embed_positions", X, matrix=0),
    "a scale that is no number": lambda: instruction("embed", X, matrix=0, scale=float("nan")),
    **{
        f"attention with {change}": lambda change=change: instruction(
            "attend", (2, 0, QUERIES), (1, 0, QUERIES), (1, QUERIES, KEYS), (1, QUERIES, KEYS), **ATTEND | change
        )
        for change in ({"rope": 1}, {"rope": -2}, {"window": 0}, {"window": LEAST}, {"scale": float("inf")})
    },
}


@pytest.mark.parametrize("misfit", MISFITS)
def test_an_instruction_that_fits_no_weights_is_refused(misfit: str) -> None:
    engine = make_engine()
    engine.add_vector(np.ones(HEAD_WIDTH, dtype=np.float32))
    first, second, *rest = decoder()
    engine.load(BUFFERS, [first, second, *rest])

    with pytest.raises(ValueError, match=r"\w"):
        engine.load(BUFFERS, [first, second, MISFITS[misfit](), *rest])


def test_embedded_rows_are_scaled() -> None:
    """By a power of two, which every number behind them keeps exactly when no norm is in between."""
    engine = make_engine()
    asking = instruction("gather", (3, 0, WIDTH), X, asked=True)
    head = instruction("linear", (4, 0, VOCABULARY), (3, 0, WIDTH), asked=True, matrix=0)
    logits = []
    for scale in (1.0, 8.0):
        engine.load(BUFFERS, [instruction("embed", X, matrix=0, scale=scale), asking, head])
        engine.run(**ONE_ROW)
        logits.append(engine.logits())

    assert (8 * logits[0]).tobytes() == logits[1].tobytes()
