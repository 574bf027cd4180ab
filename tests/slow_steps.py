"""Engines of this process whose steps take longer than they must, so that there is time to come between two of them.

Always: every step of a model lasts at least so long, on however fast a machine.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from model.runner import ModelRunner


@contextmanager
def slow_steps(seconds: float) -> Iterator[None]:
    """Until the block ends each step takes so much longer."""
    forward = ModelRunner.forward

    def slowly(runner: ModelRunner, batch: Any) -> Any:
        time.sleep(seconds)
        return forward(runner, batch)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ModelRunner, "forward", slowly)
        yield
