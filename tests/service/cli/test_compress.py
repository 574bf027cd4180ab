"""`tane compress`: recipes by name and part by part, the folder it makes, and what it refuses."""

import json
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from click.testing import CliRunner, Result

from model.compression.artefact_writer import ArtefactWriter
from model.compression.grids import Form
from model.compression.recipe import RECIPES, PruneMethod, QuantiseMethod
from model.evaluation.corpus import Corpus, Document
from model.loading.model import load_model
from service.cli.compress import folder_name
from service.cli.compression_report import error_rows
from service.cli.main import main
from service.cli.recipe_options import PARTS, name_of

TEXT = "The seed lies in the ground and waits for the rain. " * 40
SMALL = ("--windows", "2", "--window", "16")


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text(TEXT)
    return path


def compress(model: Path, out: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["compress", str(model), "--out", str(out), *arguments])


def result(found: Result) -> dict[str, Any]:
    assert 0 == found.exit_code, found.output
    values: dict[str, Any] = json.loads(found.stdout)
    return values


def test_the_folder_is_a_model_that_knows_how_it_came_about(tiny_gguf: Path, tmp_path: Path) -> None:
    said = result(compress(tiny_gguf, tmp_path / "out", "--recipe", "rtn-4bit-g32", "--json"))
    loaded = load_model(tmp_path / "out")

    assert loaded.recipe == {**said["recipe"], "report": said["report"]}
    assert "out" == loaded.name


def test_the_text_that_was_looked_at_is_recorded(tiny_gguf: Path, corpus: Path, tmp_path: Path) -> None:
    arguments = ("--recipe", "wanda-50", "--corpus", str(corpus), "--seed", "3", *SMALL, "--json")
    calibration = result(compress(tiny_gguf, tmp_path / "out", *arguments))["recipe"]["calibration"]

    assert 64 == len(calibration.pop("corpus_sha256"))
    assert {
        "corpus": "text.txt",
        "documents": ["text"],
        "windows": 2,
        "window": 16,
        "tokens": 32,
        "seed": 3,
    } == calibration


def test_without_a_need_for_text_none_is_read(tiny_gguf: Path, tmp_path: Path) -> None:
    said = result(compress(tiny_gguf, tmp_path / "out", "--recipe", "magnitude-50", "--json"))

    assert "calibration" not in said["recipe"]


def test_the_same_seed_gives_the_same_weights(tiny_gguf: Path, corpus: Path, tmp_path: Path) -> None:
    def weights(name: str, seed: int) -> bytes:
        arguments = ("--recipe", "wanda-50", "--corpus", str(corpus), *SMALL, "--seed", str(seed), "--json")
        result(compress(tiny_gguf, tmp_path / name, *arguments))
        return (tmp_path / name / "model.safetensors").read_bytes()

    assert weights("first", 1) == weights("second", 1)
    assert weights("first-again", 1) != weights("other", 2)


def test_the_report_is_a_table_for_people(tiny_gguf: Path, tmp_path: Path) -> None:
    shown = compress(tiny_gguf, tmp_path / "out", "--recipe", "rtn-8bit-row").stdout

    assert "attention_output" in shown


def test_the_next_command_can_be_copied(tiny_gguf: Path, tmp_path: Path) -> None:
    out = tmp_path / ("a long name " * 12)

    last = compress(tiny_gguf, out, "--recipe", "rtn-8bit-row").stdout.splitlines()[-1]

    assert f"Next: tane eval '{out}', or tane serve --model '{out}'" == last


def test_the_folder_is_named_by_model_and_recipe(
    tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    said = result(CliRunner().invoke(main, ["compress", str(tiny_gguf), "--recipe", "rtn-8bit-row", "--json"]))

    assert f"{load_model(tiny_gguf).name}-rtn-8bit-row" == said["folder"]
    assert (tmp_path / said["folder"] / "tane.json").is_file()


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("../../etc/x", "etc-x-rtn-8bit-row"),
        ("/x", "x-rtn-8bit-row"),
        ("--json", "json-rtn-8bit-row"),
        ("Mein Modell 種", "Mein-Modell-種-rtn-8bit-row"),
    ],
)
def test_what_a_file_calls_its_model_is_never_a_path(model: str, name: str) -> None:
    assert name == folder_name(model, "rtn-8bit-row")


def test_the_usual_text_is_kept_in_the_cache_folder(
    tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Path | None] = []

    def published_corpus(years: range, folder: Path | None) -> Corpus:
        asked.append(folder)
        return Corpus("text", (Document("text", TEXT),))

    monkeypatch.setattr("model.evaluation.corpus.published_corpus", published_corpus)
    result(compress(tiny_gguf, tmp_path / "a", "--recipe", "wanda-50", *SMALL, "--cache-folder", "here", "--json"))
    monkeypatch.setenv("TANE_CACHE_FOLDER", "there")
    result(compress(tiny_gguf, tmp_path / "b", "--recipe", "wanda-50", *SMALL, "--json"))

    assert [Path("here"), Path("there")] == asked


def test_an_interrupt_says_how_to_go_on(tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*arguments: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("model.compression.compressor.compress_layer", stop)
        stopped = compress(tiny_gguf, tmp_path / "out", "--recipe", "rtn-4bit-g32")
    again = compress(tiny_gguf, tmp_path / "out", "--recipe", "rtn-4bit-g32")

    assert 130 == stopped.exit_code
    assert "the same command goes on" in stopped.stderr
    assert 0 == again.exit_code


def test_an_interrupt_before_anything_is_written_is_quiet(
    tiny_gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*arguments: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ArtefactWriter, "__init__", stop)
    stopped = compress(tiny_gguf, tmp_path / "out", "--recipe", "rtn-4bit-g32")

    assert (130, "") == (stopped.exit_code, stopped.output)


def test_a_folder_that_is_there_is_kept(tiny_gguf: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    refused = compress(tiny_gguf, tmp_path / "out", "--recipe", "wanda-50", "--corpus", str(tmp_path))

    assert 2 == refused.exit_code
    assert "is there already" in refused.stderr  # and not that there is no text in that folder


def test_the_usual_recipes_are_listed() -> None:
    shown = CliRunner().invoke(main, ["compress", "--list"])

    assert list(RECIPES) == shown.stdout.split()


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ((), "say what to do with --recipe"),
        (("--recipe", "rtn-4bit-g32", "--bits", "4"), "leave out --bits"),
        (("--bits", "4"), "--bits needs --quantise"),
        (("--sparsity", "50"), "--sparsity needs --prune"),
        (("--recipe", "shrink-it"), "'shrink-it' in recipe"),
        (("--quantise", "gptq", "--bits", ""), "'gptq-bit-g64' in recipe"),
        (("--prune", "wanda", "--sparsity", ""), "'wanda-' in recipe"),
        (("--quantise", "gptq", "--bits", "many"), "'gptq-manybit-g64' in recipe"),
        (("--recipe", "rtn-4bit-g7"), "group is 7, which does not divide 64 columns"),
        (
            ("--recipe", "rtn-4bit-g32", "--windows", "8", "--seed", "1"),
            "leave out --windows, --seed, which would change",
        ),
        (("--recipe", "magnitude-50", "--corpus", "."), "magnitude-50 looks at no text"),
        (("--recipe", "layers-50", "--dampening", "0.1"), "leave out --dampening, which would change nothing"),
        (("--recipe", "rtn-4bit-g32", "--name", ""), "name is not text of 1 to 256 bytes"),
        (("--recipe", "rtn-4bit-g32", "--name", "n" * 257), "name is not text of 1 to 256 bytes"),
        (("--recipe", "wanda-50", "--window", "10000"), "--window 10000 is more than the model's context"),
    ],
)
def test_what_cannot_be_done_is_refused(
    tiny_gguf: Path, tmp_path: Path, arguments: tuple[str, ...], reason: str
) -> None:
    refused = compress(tiny_gguf, tmp_path / "out", *arguments)

    assert 2 == refused.exit_code
    assert reason in " ".join(refused.stderr.split())
    assert not (tmp_path / "out").exists()


def test_too_little_text_is_said(tiny_gguf: Path, corpus: Path, tmp_path: Path) -> None:
    refused = compress(
        tiny_gguf,
        tmp_path / "out",
        "--recipe",
        "wanda-50",
        "--corpus",
        str(corpus),
        "--window",
        "16",
        "--windows",
        "99",
    )

    assert 1 == refused.exit_code
    assert "and 99 are asked for" in refused.stderr


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"quantise": "gptq"}, "gptq-4bit-g64"),
        ({"quantise": "rtn", "form": "uniform", "bits": "8", "group": "row"}, "uniform-8bit-row"),
        ({"quantise": "gptq", "form": "symmetric", "range": "search"}, "gptq-4bit-g64-sym-clip"),
        ({"quantise": "rtn", "range": "99.9"}, "rtn-4bit-g64-p99.9"),
        ({"prune": "wanda", "sparsity": "2of4", "refit": True}, "wanda-2of4+refit"),
        ({"ffn": "50", "heads": "33", "prune": "obd"}, "ffn-50+heads-33+obd-50"),
    ],
)
def test_parts_spell_a_name(given: dict[str, Any], name: str) -> None:
    assert name == name_of({**dict.fromkeys(PARTS), **given})


@pytest.mark.parametrize(
    ("option", "names"),
    [("prune", get_args(PruneMethod)), ("quantise", get_args(QuantiseMethod)), ("form", get_args(Form))],
)
def test_the_options_offer_all_that_recipes_know(option: str, names: tuple[str, ...]) -> None:
    (choice,) = [each.type for each in main.commands["compress"].params if each.name == option]

    assert isinstance(choice, click.Choice)
    assert set(names) == set(choice.choices)


def test_errors_are_means_over_layers() -> None:
    figures = [{"relative_error": error, "relative_output_error": None, "zeros": 10} for error in (0.1, 0.3)]

    rows = error_rows([{"matrices": {"down": each}} for each in figures])

    assert [("down", "0.2000", "-", "20")] == rows
