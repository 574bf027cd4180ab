"""Which module may know of what: read from the syntax trees, and for torch from a running interpreter."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.source_files import ROOT, SourceFile, source_files
from tests.tiny_model import write_tiny_gguf

CONCURRENCY = (
    "service/runtime.py",
    "service/ticket.py",
    "service/server.py",
    "service/replica.py",
    "service/connections.py",  # the type of a transport
    "service/beside.py",
    "service/exchange.py",
    "service/background.py",  # callers in process block in threads of their own, or have none but ours
    "service/client.py",
    "service/cli/*",
)
ONLY_IN: dict[str, tuple[str, ...]] = {
    "fastapi": ("service/app.py", "service/*routes.py"),
    "starlette": ("service/app.py", "service/cors.py", "service/exchange.py"),
    "uvicorn": ("service/server.py", "service/connections.py"),
    "h11": ("service/connections.py",),
    "pydantic": ("service/*schemas.py", "service/settings.py"),
    "prometheus_client": ("service/metrics.py",),
    "httpx": ("service/client.py", "service/calls.py", "service/cli/load_client.py", "model/loading/hf_client.py"),
    "click": ("service/cli/*",),
    "rich": ("service/cli/*",),
    "asyncio": CONCURRENCY,
    "threading": CONCURRENCY,
    "queue": CONCURRENCY,
    "concurrent": ("service/beside.py", "service/background.py"),
    "multiprocessing": (),
    "torch": (
        "model/ops/torch_*.py",
        "model/decoding/torch_choice.py",
        "model/decoding/filters.py",
        "model/compression/*",
        "model/evaluation/predictors.py",
        "service/op_sets.py",
    ),
    "transformers": (),
    "huggingface_hub": (),
    "tokenizers": ("model/encoders.py", "model/pre_tokenizers.py"),
    "sentencepiece": ("model/encoders.py",),
    "llguidance": ("model/decoding/constraint/*",),
    "jsonschema": (),
    "jinja2": ("model/chat.py",),
    "matplotlib": ("service/cli/plotting.py",),
    "opentelemetry": ("service/tracing.py",),
    "gguf": (),
}
"""The files that may import each of these, as patterns."""

ENGINE_ROOM = [
    "accounts",
    "admission",
    "beam_answers",
    "beams",
    "draft_model",
    "drafting",
    "engine",
    "fair_queue",
    "key_limits",
    "lease",
    "namespaces",
    "plan",
    "preemption",
    "prefix_tree",
    "prompt_rows",
    "request",
    "runtime",
    "scheduler",
    "sequence",
    "sessions",
    "step_budget",
    "step_report",
    "tally",
    "ticket",
]
MAY_BE_KNOWN_TO_IT = {f"service.{name}" for name in (*ENGINE_ROOM, "errors", "logs", "retrying")}
"""Data flows one way: what is on its way into the engine, and nothing of the door that sends it."""

NATIVE_PATH = [
    "service.app",
    "service.cli.main",
    "service.client",
    "service.local",
    "service.replica",
    "service.server",
    "service.startup",
    "model.chat",
    "model.decoding.sampler",
    "model.evaluation.acceptance",
    "model.evaluation.overlap",
    "model.evaluation.perplexity",
    "model.evaluation.predictors",
    "model.evaluation.saved",
    "model.evaluation.weights",
    "model.loading.gguf",
    "model.loading.hf_pull",
    "model.loading.hub",
    "model.loading.locate",
    "model.loading.model",
    "model.runner",
    "model.tokenizer",
    "model.transformer",
]
"""What a server on an op set other than torch's imports."""

LOADS = """
import importlib, json, sys
heavy = ("torch", "transformers", "opentelemetry.sdk", "opentelemetry.exporter")
loaded = {}
for name in sys.argv[1:]:
    importlib.import_module(name)
    loaded[name] = [each for each in heavy if each in sys.modules]
json.dump(loaded, sys.stdout)
"""
"""A program that imports the modules it is given, one after another, and tells what is loaded after each."""

SERVES = """
import json, sys
from service.settings import Settings
from service.startup import build_service, load
from tests.bits.questions import greedy
from model.decoding.params import LogprobOptions
settings = Settings.load({}, {"model": sys.argv[1], "kv_cache_bytes": 1 << 20})
build_service(settings)
engine = load(settings).engine
engine.submit(greedy(range(3, 40), 3, logprobs=LogprobOptions(2)).request("r"), 0.0)
events = []
while not engine.is_idle:
    events += engine.step()[0]
heavy = [name for name in ("torch", "transformers") if name in sys.modules]
json.dump([type(events[-1]).__name__, heavy], sys.stdout)
"""
"""A program that serves a model with the settings' defaults, and tells how its one request ended and what is loaded."""


def imports_of(file: SourceFile) -> Iterator[tuple[str, int]]:
    """The full name of every module that a file imports, anywhere in it, and the line."""
    for node in file.nodes:
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{file.name}:{node.lineno} imports relatively"
            yield node.module or "", node.lineno


def importers(package: str, *folders: str) -> list[str]:
    """Every place below the folders that imports the package or a part of it."""
    return [
        f"{file.name}:{line}"
        for file in source_files(*folders)
        for name, line in imports_of(file)
        if name == package or name.startswith(f"{package}.")
    ]


def test_imports_are_found_wherever_they_stand() -> None:
    text = "import a.b\ndef f():\n    from c.d import e\n"

    assert [("a.b", 1), ("c.d", 3)] == list(imports_of(SourceFile("a.py", text)))


@pytest.mark.parametrize("package", ["service", "tests"])
def test_the_model_imports_neither_service_nor_tests(package: str) -> None:
    assert [] == importers(package, "model")


def test_the_service_imports_no_tests() -> None:
    assert [] == importers("tests", "service")


@pytest.mark.parametrize("module", ENGINE_ROOM)
def test_the_engine_room_knows_nothing_of_the_door(module: str) -> None:
    (file,) = [file for file in source_files("service") if file.name == f"service/{module}.py"]
    known = {name for name, _ in imports_of(file) if name.split(".")[0] == "service"}

    assert set() == known - MAY_BE_KNOWN_TO_IT


@pytest.mark.parametrize("package", ONLY_IN)
def test_a_package_is_imported_only_where_it_may_be(package: str) -> None:
    places = importers(package, "model", "service")

    assert [] == [place for place in places if not any(fnmatch(place, f"{allowed}:*") for allowed in ONLY_IN[package])]


def test_the_environment_is_read_in_one_place() -> None:
    readers = {
        file.name
        for file in source_files("model", "service")
        for node in file.nodes
        if isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv", "putenv")
    }

    assert {"service/settings.py"} == readers


def test_serving_loads_neither_torch_nor_transformers_nor_what_sends_traces() -> None:
    answer = subprocess.run(
        [sys.executable, "-c", LOADS, *NATIVE_PATH], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert "" == answer.stderr
    assert {name: [] for name in NATIVE_PATH} == json.loads(answer.stdout)


def test_a_model_in_process_needs_no_http() -> None:
    program = "import sys, service.local; print(*sorted({'fastapi', 'uvicorn', 'httpx'} & sys.modules.keys()))"

    answer = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)

    assert ("", "\n") == (answer.stderr, answer.stdout)


def test_a_request_served_by_default_loads_neither_torch_nor_transformers(tmp_path: Path) -> None:
    model = write_tiny_gguf(tmp_path / "tiny.gguf", format="Q4_1")

    answer = subprocess.run(
        [sys.executable, "-c", SERVES, str(model)], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert "" == answer.stderr
    assert ["Finished", []] == json.loads(answer.stdout)
