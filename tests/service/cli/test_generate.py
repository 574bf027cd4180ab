"""`tane generate` as a person meets it: what is printed where, what is asked, and how it fails."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from model.decoding.constraint import ConstraintSpec
from model.decoding.params import Explanation, Stage
from service.cli.main import main
from service.request import Finished, GenerationRequest, SpeculationReport, TokenRecord
from tests.fake_runtime import MODEL, failing, finished, plain
from tests.service.cli.fake_generator import FakeGenerator


@pytest.fixture(autouse=True)
def _fake(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeGenerator.script = plain("sun", "rise")
    monkeypatch.setattr("service.local_generator.LocalGenerator", FakeGenerator)


def generate(*arguments: str, stdin: str | bytes = "") -> Result:
    return CliRunner().invoke(main, ["generate", *arguments], input=stdin)


def asked(*arguments: str) -> GenerationRequest:
    result = generate(*arguments)
    assert 0 == result.exit_code, result.output
    return FakeGenerator.request


def test_the_text_is_all_that_reaches_stdout() -> None:
    result = generate("hi")

    assert (0, "sunrise\n") == (result.exit_code, result.stdout)


def test_a_last_line_on_stderr_says_how_it_went() -> None:
    assert "7 tokens · 2.0 tokens/s · seed 5 · length\n" == generate("hi", "--seed", "5").stderr


def test_a_single_text_is_printed_as_it_is_made() -> None:
    FakeGenerator.script = failing("numerical_error", "sun")

    result = generate("hi")

    assert (1, "sun") == (result.exit_code, result.stdout)
    assert "Error: the model gave a value that is not a number\n" == result.stderr


def test_several_texts_are_numbered() -> None:
    result = generate("hi", "--num-return", "2")

    assert "[0] sunrise\n[1] sunrise\n" == result.stdout


def test_json_is_the_answer_that_the_server_gives() -> None:
    answer = json.loads(generate("hi", "--json", "--seed", "5").stdout)

    assert "sunrise" == answer["text"]
    assert 5 == answer["seed"]
    assert {"usage", "cache", "timings", "parameters", "reproducibility"} <= answer.keys()


def test_json_leaves_stderr_empty() -> None:
    assert "" == generate("hi", "--json").stderr


def test_log_probabilities_are_shown_for_each_token() -> None:
    result = generate("hi", "--logprobs", "2")

    assert 7 == result.stdout.count("-0.500")
    assert 7 == result.stdout.count("-2.000")


def test_the_prompt_is_the_argument() -> None:
    assert tuple(MODEL.tokenizer.encode("hi")) == asked("hi").prompt_ids


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_the_prompt_may_come_from_a_pipe(arguments: tuple[str, ...]) -> None:
    generate(*arguments, stdin="hi\nyou")

    assert tuple(MODEL.tokenizer.encode("hi\nyou")) == FakeGenerator.request.prompt_ids


@pytest.mark.parametrize(
    ("piped", "prompt"), [("hi\n", "hi"), ("hi\r\n", "hi"), ("hi\n\n", "hi\n"), ("hi\r", "hi\r"), ("hi ", "hi ")]
)
def test_one_last_line_end_of_a_pipe_is_dropped(piped: str, prompt: str) -> None:
    generate("-", stdin=piped.encode())

    assert tuple(MODEL.tokenizer.encode(prompt)) == FakeGenerator.request.prompt_ids


def test_chat_puts_the_prompt_into_the_template() -> None:
    (turn,) = [asked("hi", "--chat").prompt_ids]

    assert "<|start|>user\nhi<|end|>" == MODEL.tokenizer.decode(turn)


def test_every_option_reaches_the_request() -> None:
    options = {
        "max-new-tokens": 9,
        "min-new-tokens": 2,
        "temperature": 0.5,
        "top-k": 3,
        "top-p": 0.25,
        "min-p": 0.125,
        "seed": 11,
        "stop": "x",
        "stop-token-id": 7,
        "logprobs": 4,
        "num-return": 2,
        "repetition-penalty": 1.5,
        "penalty-scope": "all",
        "presence-penalty": -0.5,
        "frequency-penalty": 0.75,
        "speculation": "prompt_lookup",
    }
    request = asked("hi", "--ignore-eos", "--explain", *(f"--{name}={value}" for name, value in options.items()))

    decoding = request.parameters
    assert decoding.logprobs is not None
    assert list(options.values()) == [
        decoding.max_new_tokens,
        decoding.min_new_tokens,
        decoding.temperature,
        decoding.top_k,
        decoding.top_p,
        decoding.min_p,
        decoding.seed,
        *decoding.stop,
        *decoding.stop_token_ids,
        decoding.logprobs.top,
        request.sample_count,
        decoding.penalties.repetition,
        decoding.penalties.scope,
        decoding.penalties.presence,
        decoding.penalties.frequency,
        decoding.speculation,
    ]
    assert decoding.ignore_eos
    assert decoding.explain


def test_options_left_out_take_the_models_defaults() -> None:
    assert (0.2, 0.9) == (asked("hi").parameters.temperature, asked("hi").parameters.top_p)


def test_settings_come_from_flags_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANE_THREADS", "3")

    asked("hi", "--engine", "torch", "--model", "some.gguf", "--draft", "small.gguf")

    settings = FakeGenerator.settings
    assert settings is not None
    assert ("some.gguf", "small.gguf", "torch", 3) == (
        settings.model,
        settings.draft,
        settings.engine,
        settings.threads,
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["hi", "--temperature", "3"], "temperature must be: number in [0, 2]"),
        (["hi", "--top-p", "nan"], "top_p must be finite: number in (0, 1]"),
        (["hi", "--logprobs", "21"], "logprobs.top must be: integer in [0, 20]"),
        (
            ["hi", "--stop-token-id", "100000"],
            f"stop_token_ids.0 is not a token id: there are {MODEL.tokenizer.vocabulary_size}",
        ),
        (["hi" * 40], "the prompt has 80 tokens, and with max_new_tokens 1 it needs 81; the context holds 64"),
        ([""], "prompt must not be empty"),
        (["hi", "--engine", "gpu"], "--engine must be one of auto, native, torch"),
    ],
)
def test_a_bad_value_is_told_in_the_servers_words(arguments: list[str], message: str) -> None:
    result = generate(*arguments)

    assert (2, f"Error: {message}\n") == (result.exit_code, result.stderr)


def test_half_a_character_from_the_command_line_is_refused() -> None:
    result = generate("a\udcff")

    assert 2 == result.exit_code
    assert "PROMPT is not UTF-8 at character 1" in result.stderr


def test_standard_input_that_is_no_text_is_refused() -> None:
    result = generate("-", stdin=b"a\xff")

    assert 2 == result.exit_code
    assert "not UTF-8 at byte 1" in result.stderr


def test_an_interruption_ends_quietly() -> None:
    def interrupted(request: GenerationRequest) -> Any:
        raise KeyboardInterrupt

    FakeGenerator.script = interrupted

    result = generate("hi")

    assert (130, "") == (result.exit_code, result.output)


def test_beams_are_asked_for() -> None:
    result = generate("--beam-width", "3", "--num-return", "2", "--length-penalty", "0.5", "abc")

    parameters = FakeGenerator.request.parameters
    assert 0 == result.exit_code
    assert (3, 0.5, 1.0) == (parameters.beam_width, parameters.length_penalty, parameters.temperature)


def searched(request: GenerationRequest) -> Sequence[Finished]:
    event = finished(request, "sunrise")
    texts = tuple(replace(text, logprob=-3.0, score=-0.5 - text.index) for text in event.completions)
    return [replace(event, completions=texts, stopped="bound")]


def test_beams_tell_their_scores_and_why_the_search_ended() -> None:
    FakeGenerator.script = searched

    result = generate("hi", "--beam-width", "3", "--num-return", "2", "--seed", "5")

    assert result.stderr.endswith(" · seed 5 · length, length · score -0.500, -1.500 · stopped: bound\n")


def test_guesses_that_were_kept_are_counted() -> None:
    FakeGenerator.script = lambda request: [replace(finished(request, "sun"), speculation=SpeculationReport(9, 4))]

    assert generate("hi").stderr.endswith("· 4 of 9 guesses kept\n")


def test_an_explanation_has_a_row_for_each_token() -> None:
    stage = Stage("model", candidates=123, mass=1.0, top=((5, 0.5),))
    token = TokenRecord(5, explanation=Explanation(entropy=3.25, uniform=0.4127, stages=(stage,)))
    FakeGenerator.script = lambda request: [
        replace(event, completions=tuple(replace(text, tokens=(token,)) for text in event.completions))
        for event in [finished(request, "sun")]
    ]

    (row,) = [line for line in generate("hi", "--explain").stdout.splitlines() if "3.250" in line]

    assert "0.4127" in row
    assert "model 123" in row


def test_a_file_of_json_is_a_constraint(tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text('{"type": "integer"}')

    constraint = asked("hi", "--json-schema", str(tmp_path / "schema.json")).constraint

    assert constraint is not None
    assert ConstraintSpec.json_schema({"type": "integer"}) == constraint.spec


def test_a_file_of_a_grammar_is_a_constraint(tmp_path: Path) -> None:
    (tmp_path / "grammar.lark").write_text('start: "a"')

    constraint = asked("hi", "--grammar", str(tmp_path / "grammar.lark")).constraint

    assert constraint is not None
    assert ConstraintSpec.grammar('start: "a"') == constraint.spec


@pytest.mark.parametrize(
    ("arguments", "spec"),
    [
        (("--regex", "a+"), ConstraintSpec.regex("a+")),
        (("--choice", "yes", "--choice", "no"), ConstraintSpec.choice(("yes", "no"))),
    ],
)
def test_an_expression_and_texts_to_choose_from_are_constraints(
    arguments: tuple[str, ...], spec: ConstraintSpec
) -> None:
    constraint = asked("hi", *arguments).constraint

    assert constraint is not None
    assert spec == constraint.spec


@pytest.mark.parametrize(
    ("option", "content", "message"),
    [
        ("--json-schema", b"{", "is not valid JSON"),
        ("--json-schema", b"5", "constraint.json_schema must be"),
        ("--json-schema", None, "cannot be read: No such file or directory"),
        ("--grammar", b"a\xff", "is not UTF-8 at byte 1"),
        ("--grammar", None, "cannot be read: No such file or directory"),
        ("--grammar", b"start", "constraint.grammar: line 1"),
    ],
)
def test_a_file_that_is_no_constraint_is_told(tmp_path: Path, option: str, content: bytes | None, message: str) -> None:
    if content is not None:
        (tmp_path / "file").write_bytes(content)

    result = generate("hi", option, str(tmp_path / "file"))

    assert (2, "") == (result.exit_code, result.stdout)
    assert message in result.stderr


def test_two_kinds_of_constraint_are_refused_in_the_servers_words() -> None:
    result = generate("hi", "--regex", "a", "--choice", "b")

    assert (2, "Error: only one kind of constraint may be given\n") == (result.exit_code, result.stderr)


@pytest.mark.parametrize(
    ("option", "default"),
    [("--length-penalty", "0.0"), ("--min-new-tokens", "0"), ("--ignore-eos", "false"), ("--speculation", "auto")],
)
def test_help_shows_every_default(option: str, default: str) -> None:
    text = " ".join(generate("--help").stdout.split())

    about = text[text.index(f" {option} ") :].partition(" --")[2].partition(" --")[0]
    assert f"[default: {default}]" in about
