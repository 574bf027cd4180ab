"""`--variant`: which models are loaded beside the main one, and what is said of those that cannot be."""

from pathlib import Path
from typing import Any

import pytest

from model.evaluation.saved import write_evaluation
from model.loading.checkpoint import Checkpoint, ModelFileError
from model.loading.model import load_model
from service.context import Served, Service
from service.settings import Settings
from service.startup import Loaded, build_service, load_all
from tests.compressed import grids_for, tiny_source, write_artefact
from tests.tiny_model import TinyShape, write_tiny_gguf

CACHE = 1 << 20
SHAPE = TinyShape(width=64, feed_forward=128)
WEIGHTS = 2 * (64 * (64 + 32 + 32 + 64) + 3 * 64 * 128)
"""Of the linear layers."""


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    source = tiny_source(folder, shape=SHAPE)
    write_artefact(folder / "compressed", source, grids_for(source, bits=3, group=64))
    return folder


def settings(models: Path, *variants: str, **flags: Any) -> Settings:
    given = {"model": str(models / "source.gguf"), "kv_cache_bytes": CACHE, "draft_cache_bytes": CACHE, "threads": 1}
    return Settings.load({}, {**given, "variant": variants, **flags})


def service(models: Path, *variants: str, **flags: Any) -> Service:
    return build_service(settings(models, *variants, **flags))


def problem_of(models: Path, *variants: str, **flags: Any) -> str:
    with pytest.raises(ModelFileError) as caught:
        build_service(settings(models, *variants, **flags))
    return str(caught.value)


def served(models: Path) -> tuple[Served, Served]:
    main, variant = service(models, f"small={models / 'compressed'}").models.values()
    return main, variant


def test_without_the_option_one_model_is_served(models: Path) -> None:
    assert ["tiny"] == list(service(models).models)


def test_a_variant_is_served_under_the_name_that_it_was_given(models: Path) -> None:
    _, variant = served(models)

    assert "small" == variant.model.name


def test_models_are_in_the_order_of_the_options_after_the_main_one(models: Path) -> None:
    compressed = models / "compressed"

    assert ["tiny", "z", "a"] == list(service(models, f"z={compressed}", f"a={compressed}").models)


def test_a_variant_may_have_another_vocabulary_and_another_context(models: Path, tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "other.gguf", shape=TinyShape(vocabulary=352, context=64))

    main, variant = service(models, f"other={path}").models.values()

    assert (320, 352) == (main.model.tokenizer.vocabulary_size, variant.model.tokenizer.vocabulary_size)
    assert 64 == variant.engine_info.context_length


def test_each_model_has_an_engine_and_a_cache_of_its_own(models: Path) -> None:
    main, variant = served(models)

    assert main.runtime is not variant.runtime
    assert CACHE - main.engine_info.page_bytes < main.engine_info.kv_cache_bytes <= CACHE
    assert CACHE - variant.engine_info.page_bytes < variant.engine_info.kv_cache_bytes <= CACHE


def test_each_model_has_the_fingerprint_that_it_has_alone(models: Path) -> None:
    main, variant = served(models)
    alone = build_service(settings(models, model=str(models / "compressed"))).main

    assert main.engine_info.fingerprint != variant.engine_info.fingerprint == alone.engine_info.fingerprint


def test_the_report_counts_what_is_stored(models: Path) -> None:
    main, variant = (each.model.report for each in served(models))

    assert main.parameters == variant.parameters
    saved = WEIGHTS * 34 // 32 - (WEIGHTS * 3 // 8 + WEIGHTS // 64 * 4)
    assert main.bytes - saved == variant.bytes
    assert 8 * variant.bytes / variant.parameters == variant.bits_per_weight


def test_the_report_names_the_recipe_where_there_is_one(models: Path) -> None:
    main, variant = (each.model.report for each in served(models))

    assert (None, "random-codes") == (main.recipe, variant.recipe)


@pytest.mark.parametrize("report", [{"loss": 0.25}, None])
def test_figures_that_were_kept_with_the_model_are_its_report(
    models: Path, tmp_path: Path, report: dict[str, Any] | None
) -> None:
    source = load_model(models / "source.gguf")
    path = write_artefact(tmp_path / "c", source, grids_for(source), report=report)

    _, variant = service(models, f"small={path}").models.values()

    assert report == variant.model.report.report


def test_only_single_figures_are_told_of_a_model(models: Path, tmp_path: Path) -> None:
    source = load_model(models / "source.gguf")
    path = write_artefact(tmp_path / "c", source, grids_for(source), report={"loss": 0.25, "layers": [{"layer": 0}]})
    sha256 = load_model(path).sha256
    write_evaluation(path, {"model_sha256": sha256, "perplexity": 20.5, "layer_errors": {"0.down": 0.1}})

    _, variant = service(models, f"small={path}").models.values()

    assert {"loss": 0.25} == variant.model.report.report
    assert {"model_sha256": sha256, "perplexity": 20.5} == variant.model.report.evaluation


def test_figures_of_another_model_are_not_told(models: Path, tmp_path: Path) -> None:
    source = load_model(models / "source.gguf")
    path = write_artefact(tmp_path / "c", source, grids_for(source))
    write_evaluation(path, {"model_sha256": "0" * 64, "perplexity": 20.5})

    _, variant = service(models, f"small={path}").models.values()

    assert variant.model.report.evaluation is None


@pytest.mark.parametrize("name", ["a=gone.gguf", "a=\0", "a=."])
def test_a_variant_that_is_no_model_is_told_by_its_option(models: Path, name: str) -> None:
    assert problem_of(models, name).startswith("--variant a: ")


def test_a_variant_that_the_engine_cannot_run_is_told_by_its_option(models: Path, tmp_path: Path) -> None:
    path = write_tiny_gguf(tmp_path / "odd.gguf", shape=TinyShape(heads=8, kv_heads=4, head_width=12))

    assert "--variant odd: the native engine has no attention for these heads" == problem_of(models, f"odd={path}")


def test_a_variant_whose_pages_do_not_fit_is_told_by_its_option(models: Path, tmp_path: Path) -> None:
    wide = write_tiny_gguf(tmp_path / "wide.gguf", shape=TinyShape(layers=8, kv_heads=8, heads=8, head_width=256))

    problem = problem_of(models, f"wide={wide}")

    assert problem.startswith("--variant wide: a page of 32 tokens needs ")
    assert problem.endswith("--kv-cache-bytes allows 1048576")


def test_the_main_models_name_is_taken(models: Path) -> None:
    assert "--variant tiny: the main model has that name; choose another" == problem_of(
        models, f"tiny={models / 'compressed'}"
    )


def test_a_missing_file_is_told_before_an_engine_is_built(models: Path, tmp_path: Path) -> None:
    odd = write_tiny_gguf(tmp_path / "odd.gguf", shape=TinyShape(heads=8, kv_heads=4, head_width=12))

    assert problem_of(models, "a=gone.gguf", model=str(odd)).startswith("--variant a: gone.gguf")


class Opener:
    """Opens models, and remembers which."""

    def __init__(self) -> None:
        self.opened: list[str] = []

    def __call__(self, path: Path) -> Checkpoint:
        self.opened.append(path.name)
        return load_model(path)


def loaded_by(opener: Opener, models: Path, *variants: str, **flags: Any) -> list[Loaded]:
    return load_all(settings(models, *variants, **flags), open_model=opener)


def test_a_variant_may_be_the_draft_by_its_name_and_is_opened_once(models: Path) -> None:
    opener = Opener()

    main, variant = loaded_by(opener, models, f"small={models / 'compressed'}", draft="small")

    assert main.model.draft is not None
    assert ("small", variant.model.sha256) == (main.model.draft.name, main.model.draft.sha256)
    assert ["source.gguf", "compressed"] == opener.opened


def test_a_draft_guesses_for_the_main_model_alone(models: Path) -> None:
    _, variant = loaded_by(Opener(), models, f"small={models / 'compressed'}", draft="small")

    assert variant.model.draft is None


def test_a_draft_may_be_a_path_beside_variants(models: Path) -> None:
    main, _ = loaded_by(Opener(), models, f"small={models / 'source.gguf'}", draft=str(models / "compressed"))

    assert main.model.draft is not None
    assert "tiny-compressed" == main.model.draft.name


def test_a_file_that_is_named_twice_is_opened_once(models: Path) -> None:
    opener, source = Opener(), models / "source.gguf"

    loaded_by(opener, models, f"a={source}", f"b={source}", draft=str(source))

    assert ["source.gguf"] == opener.opened
