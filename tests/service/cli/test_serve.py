"""`tane serve`: its options, what it says before it serves, and how it ends."""

from dataclasses import replace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from model.loading.checkpoint import ModelFileError
from model.loading.wheels import PullError
from service.cli.main import main
from service.cli.serve import address_of
from service.context import Served, Service
from service.keys import Keys, KeysError
from service.logs import event_of, fields_of
from service.model_report import ModelReport
from service.settings import Settings
from tests.fake_runtime import ENGINE_INFO, MODEL, FakeRuntime, make_service


class FakeServer:
    """Stands for the start and the run of a server, and remembers its settings."""

    def __init__(self) -> None:
        self.settings: Settings | None = None
        self.failure: Exception | None = None
        self.exit_code = 0
        self.address_problem: str | None = None
        self.variants: list[Served] = []
        self.keys: Keys | None = None

    def build_service(self, settings: Settings, *, progress: Any) -> Service:
        if self.failure is not None:
            raise self.failure
        return make_service(settings=settings, variants=self.variants, keys=self.keys)

    def configure_logging(self, level: str, form: str, stream: Any) -> None:
        """As for people, so that lines of the log are not among what is printed."""

    def run_server(self, service: Service, settings: Settings) -> int:
        self.settings = settings
        return self.exit_code


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> FakeServer:
    fake = FakeServer()
    monkeypatch.setattr("service.startup.build_service", fake.build_service)
    monkeypatch.setattr("service.server.run_server", fake.run_server)
    monkeypatch.setattr("service.cli.serve.configure_logging", fake.configure_logging)
    monkeypatch.setattr("service.addresses.address_problem", lambda settings: fake.address_problem)
    return fake


def serve(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["serve", "--log-format", "text", *arguments])


def settings_for(host: str, port: int) -> Settings:
    return Settings.load({}, {"host": host, "port": port})


@pytest.mark.parametrize("name", Settings.options())
def test_every_setting_is_an_option_with_its_default_and_its_meaning(name: str) -> None:
    option = Settings.options()[name]

    printed = " ".join(serve("--help").stdout.split())

    assert option.flag in printed
    assert option.description in printed
    if not option.is_switch and option.default not in (None, ()):
        assert f"[default: {option.default}]" in printed


def test_options_reach_the_server(server: FakeServer) -> None:
    serve("--port", "9000", "--kv-cache-bytes", "2097152", "--log-level", "error")

    assert server.settings is not None
    assert (9000, 2097152, "error") == (
        server.settings.port,
        server.settings.kv_cache_bytes,
        server.settings.log_level,
    )


@pytest.mark.parametrize("exit_code", [0, 1])
def test_the_servers_exit_code_is_the_commands(server: FakeServer, exit_code: int) -> None:
    server.exit_code = exit_code

    assert exit_code == serve().exit_code


def test_the_banner_names_model_engine_cache_and_address(server: FakeServer) -> None:
    lines = serve("--port", "9000").stderr.splitlines()

    assert [
        "model   tiny, 64 tokens of context",
        "engine  fake, answers repeat best effort",
        "cache   1 MiB, 16384 tokens",
        "address http://127.0.0.1:9000",
    ] == lines[:4]


def test_the_banner_has_a_line_to_try(server: FakeServer) -> None:
    assert "curl http://127.0.0.1:9000/generate" in serve("--port", "9000").stderr.splitlines()[4]


def test_the_banner_has_a_line_for_each_variant(server: FakeServer) -> None:
    report = ModelReport(
        parameters=8 << 20, bytes=4 << 20, bits_per_weight=4.0, recipe="gptq-4bit-g64", report=None, evaluation=None
    )
    plain = replace(report, recipe=None)
    server.variants = [
        Served(FakeRuntime(), ENGINE_INFO, replace(MODEL, name=name, report=each))
        for name, each in (("small", report), ("half", plain))
    ]

    sizes = "4.00 bits a weight, 4 MiB of weights, 64 tokens of context, 1 MiB of cache"
    assert [f"variant small, gptq-4bit-g64, {sizes}", f"variant half, {sizes}"] == serve().stderr.splitlines()[1:3]


def test_variants_reach_the_server(server: FakeServer) -> None:
    serve("--variant", "small=./s.gguf", "--variant", "half=h")

    assert server.settings is not None
    assert {"small": "./s.gguf", "half": "h"} == server.settings.variants


def test_nothing_reaches_stdout(server: FakeServer) -> None:
    assert "" == serve().stdout


@pytest.mark.parametrize(
    ("host", "port", "address"),
    [
        ("127.0.0.1", 80, "http://127.0.0.1:80"),
        ("0.0.0.0", 80, "http://127.0.0.1:80"),
        ("::", 80, "http://127.0.0.1:80"),
        ("::1", 80, "http://[::1]:80"),
        ("127.0.0.1", 0, None),
    ],
)
def test_the_address_is_one_that_a_caller_can_use(host: str, port: int, address: str | None) -> None:
    assert address == address_of(settings_for(host, port))


def test_every_bad_option_gets_its_line(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANE_ENGINE", "gpu")

    result = serve("--port", "70000")

    assert 2 == result.exit_code
    assert {
        "Error: --port must be a whole number from 0 to 65535",
        "TANE_ENGINE must be one of auto, native, torch",
    } == set(result.stderr.splitlines())


@pytest.mark.parametrize(
    ("failure", "exit_code"), [(ModelFileError("not a GGUF file"), 2), (PullError("no index is reachable"), 1)]
)
def test_a_model_that_cannot_be_had_ends_it_in_one_line(server: FakeServer, failure: Exception, exit_code: int) -> None:
    server.failure = failure

    result = serve()

    assert (exit_code, f"Error: {failure}\n") == (result.exit_code, result.stderr)


def test_as_json_what_is_served_is_lines_of_the_log(server: FakeServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")

    result = serve("--log-format", "json")

    assert (0, "") == (result.exit_code, result.output)
    assert ["start", "loaded"] == [event_of(record) for record in caplog.records]
    assert "tiny" == fields_of(caplog.records[1])["model"]


def test_as_json_a_model_that_cannot_be_had_is_a_line_of_the_log(
    server: FakeServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.failure = ModelFileError("not a GGUF file")

    result = serve("--log-format", "json")

    (record,) = caplog.records
    assert (2, "") == (result.exit_code, result.output)
    assert ("not_started", "not a GGUF file") == (event_of(record), record.getMessage())


def test_an_address_that_is_taken_is_refused_before_the_model_is_loaded(server: FakeServer) -> None:
    server.failure = ModelFileError("loaded all the same")
    server.address_problem = "cannot listen on 127.0.0.1:8000: taken"

    result = serve()

    assert (1, "Error: cannot listen on 127.0.0.1:8000: taken\n") == (result.exit_code, result.stderr)


def test_an_interruption_while_loading_ends_quietly(server: FakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(settings: Settings, *, progress: Any) -> Service:
        raise KeyboardInterrupt

    monkeypatch.setattr("service.startup.build_service", interrupted)

    result = serve()

    assert (130, "") == (result.exit_code, result.output)


def test_other_machines_are_not_served_without_keys(server: FakeServer) -> None:
    result = serve("--host", "0.0.0.0")

    assert 2 == result.exit_code
    assert "give --keys-file, or --insecure if anyone may call" in result.stderr
    assert server.settings is None


def test_a_switch_stands_without_a_value(server: FakeServer) -> None:
    serve("--host", "0.0.0.0", "--insecure")

    assert server.settings is not None
    assert server.settings.insecure is True


def test_a_file_of_keys_that_cannot_be_used_ends_the_command_in_a_line(server: FakeServer) -> None:
    server.failure = KeysError("keys:2: a key is 1 to 512 printable ASCII characters without spaces")

    result = serve("--keys-file", "keys")

    assert 2 == result.exit_code
    assert "Error: keys:2: a key is 1 to 512 printable ASCII characters without spaces" in result.stderr


def test_a_collector_that_is_none_ends_the_command_in_a_line(server: FakeServer) -> None:
    result = serve("--otlp-endpoint", "collector:4317")

    assert 2 == result.exit_code
    assert "Error: --otlp-endpoint must be an address like http://127.0.0.1:4318" in result.stderr


def test_a_protocol_that_is_not_spoken_ends_the_command_in_a_line(
    server: FakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://a:1")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")

    result = serve()

    assert 2 == result.exit_code
    assert "Error: OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf" in result.stderr


def test_the_line_to_try_names_the_variable_of_the_key(server: FakeServer) -> None:
    server.keys = Keys([b"secret"])

    assert '-H "authorization: Bearer $TANE_API_KEY"' in serve("--port", "9000").stderr.splitlines()[4]
