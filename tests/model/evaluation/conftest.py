"""A tiny source model and windows of random ids."""

import numpy as np
import pytest

from model.evaluation.corpus import Window
from model.loading.checkpoint import Checkpoint
from tests.compressed import tiny_source
from tests.tiny_model import TinyShape

SHAPE = TinyShape(context=128)


@pytest.fixture(scope="session")
def source(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return tiny_source(tmp_path_factory.mktemp("source"), shape=SHAPE, format="Q8_0")


@pytest.fixture(scope="session")
def windows() -> list[Window]:
    """Six windows of 32 ids, two of each document."""
    ids = np.random.default_rng(7).integers(3, SHAPE.vocabulary, (6, 32))
    return [(f"document-{index % 3}", tuple(row.tolist())) for index, row in enumerate(ids)]
