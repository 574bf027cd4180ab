"""All targets by their names."""

from collections.abc import Callable, Mapping

from tests.fuzz.gguf_target import gguf_target
from tests.fuzz.grammar_target import grammar_target
from tests.fuzz.json_target import json_target
from tests.fuzz.stop_target import stop_target
from tests.fuzz.target import Target

TARGETS: Mapping[str, Callable[[], Target]] = {
    "gguf": gguf_target,
    "json": json_target,
    "grammar": grammar_target,
    "stop": stop_target,
}
