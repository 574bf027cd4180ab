"""Settings come from flags and the environment, and every bad one is named in a line of its own."""

from pathlib import Path
from typing import Any

import pytest

from service.settings import Settings, SettingsError


def problems_of(environ: dict[str, str], **flags: Any) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        Settings.load(environ, flags)
    return caught.value.problems


def test_nothing_given_means_defaults() -> None:
    defaults = {option.name: option.default for option in Settings.options().values()}

    assert defaults == Settings.load({}, {}).model_dump()


def test_variables_set_options() -> None:
    assert 2**21 == Settings.load({"TANE_KV_CACHE_BYTES": "2097152"}, {}).kv_cache_bytes


def test_flags_win_over_variables() -> None:
    assert 2 == Settings.load({"TANE_PORT": "1"}, {"port": "2"}).port


def test_flags_that_were_not_given_change_nothing() -> None:
    assert 1 == Settings.load({"TANE_PORT": "1"}, {"port": None}).port


def test_the_model_is_kept_in_the_users_cache_folder_unless_told_otherwise() -> None:
    environ = {"XDG_CACHE_HOME": "/caches"}

    assert Path("/caches/tane") == Settings.load(environ, {}).models_folder
    assert Path("/here") == Settings.load(environ, {"cache_folder": "/here"}).models_folder
    assert Settings.load({}, {}).models_folder is None


def test_other_variables_are_none_of_ours() -> None:
    assert Settings.load({}, {}) == Settings.load({"PATH": "/bin", "tane_port": "1"}, {})


def test_an_unknown_variable_is_refused() -> None:
    assert ("TANE_COLOUR is no option",) == problems_of({"TANE_COLOUR": "red"})


def test_the_key_that_commands_send_to_servers_is_no_option_of_ours() -> None:
    assert Settings.load({}, {}) == Settings.load({"TANE_API_KEY": "s3cret"}, {})


def test_a_misspelt_variable_is_answered_with_the_nearest() -> None:
    assert ("TANE_PROT is no option; did you mean TANE_PORT?",) == problems_of({"TANE_PROT": "1"})


VARIANTS = "NAME=PATH, each NAME once and of 1 to 64 letters, digits, '.', '_' and '-'"


def test_the_hub_is_the_public_one_unless_another_is_named() -> None:
    assert "https://huggingface.co" == Settings.load({}, {}).hub.endpoint
    assert "http://mirror" == Settings.load({"HF_ENDPOINT": "http://mirror"}, {}).hub.endpoint


def test_the_token_of_the_hub_is_read_without_the_end_of_its_line() -> None:
    assert "hf_s3cret" == Settings.load({"HF_TOKEN": "hf_s3cret\n"}, {}).hub.token
    assert Settings.load({"HF_TOKEN": ""}, {}).hub.token is None


def test_the_token_of_the_hub_is_shown_nowhere() -> None:
    settings = Settings.load({"HF_TOKEN": "hf_s3cret"}, {})

    assert "s3cret" not in f"{settings!r} {settings} {settings.model_dump()} {settings.hub!r}"


@pytest.mark.parametrize("token", ["two words", "a\nb", "schlüssel"])
def test_what_can_be_no_token_is_refused_without_being_shown(token: str) -> None:
    (problem,) = problems_of({"HF_TOKEN": token})

    assert problem.startswith("HF_TOKEN must be")
    assert token not in problem


def test_variants_have_a_name_and_a_path_each() -> None:
    flags = {"variant": ("small=./small.gguf", "a.B_9-=/folder with/a=b")}

    expected = {"small": "./small.gguf", "a.B_9-": "/folder with/a=b"}
    assert expected == Settings.load({}, flags).variants
    assert list(expected) == list(Settings.load({}, flags).variants)


def test_variants_of_the_environment_are_separated_by_spaces() -> None:
    assert {"a": "x", "b": "y"} == Settings.load({"TANE_VARIANT": "a=x b=y"}, {}).variants
    assert {} == Settings.load({"TANE_VARIANT": ""}, {}).variants


@pytest.mark.parametrize(
    "values", ["x", "=x", "a=", "a b=x", "a/b=x", "é=x", f"{'a' * 65}=x", ("a=x", "a=y"), ("a=x", "b")]
)
def test_a_bad_variant_is_refused_by_its_option(values: str | tuple[str, ...]) -> None:
    flags = (values,) if isinstance(values, str) else values

    assert (f"--variant must be {VARIANTS}",) == problems_of({}, variant=flags)


def test_a_bad_variant_of_the_environment_is_refused_by_its_variable() -> None:
    assert (f"TANE_VARIANT must be {VARIANTS}",) == problems_of({"TANE_VARIANT": "a=x a=y"})


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("port", "65536", "a whole number from 0 to 65535"),
        ("port", "http", "a whole number from 0 to 65535"),
        ("threads", "0", "a whole number of at least 1"),
        ("session_ttl_s", "0", "a number above 0"),
        ("drain_s", "-1", "a number of at least 0"),
        ("drain_s", "nan", "a number of at least 0"),
        ("session_ttl_s", "inf", "a number above 0"),
        ("engine", "gpu", "one of auto, native, torch"),
    ],
)
def test_a_bad_value_is_answered_with_what_is_allowed(name: str, value: str, allowed: str) -> None:
    option = Settings.options()[name]

    assert (f"{option.flag} must be {allowed}",) == problems_of({}, **{name: value})
    assert (f"{option.variable} must be {allowed}",) == problems_of({option.variable: value})


def test_every_problem_is_told() -> None:
    assert 3 == len(problems_of({"TANE_PORT": "a", "TANE_NOISE": "1"}, threads="-1"))


def test_a_bad_value_is_not_repeated() -> None:
    assert "secret" not in problems_of({"TANE_PORT": "secret"})[0]


def test_every_option_says_what_it_is_for() -> None:
    assert [] == [option.name for option in Settings.options().values() if not option.description.endswith(".")]


def test_flags_and_variables_are_named_alike() -> None:
    option = Settings.options()["kv_cache_bytes"]

    assert ("--kv-cache-bytes", "TANE_KV_CACHE_BYTES") == (option.flag, option.variable)


def test_this_process_environment_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TANE_PORT", "9000")

    assert 9000 == Settings.from_environment({}).port


@pytest.mark.parametrize("value", ["0", "1.5", "-1", "all"])
def test_a_share_of_the_cache_is_a_part_of_it(value: str) -> None:
    assert ("--key-cache-share must be a number above 0 up to 1",) == problems_of({}, key_cache_share=value)


@pytest.mark.parametrize(("value", "expected"), [("1", True), ("true", True), ("0", False), ("false", False)])
def test_a_switch_is_true_or_false_in_the_environment(value: str, expected: bool) -> None:
    assert expected is Settings.load({"TANE_INSECURE": value}, {}).insecure


def test_what_is_neither_true_nor_false_is_refused() -> None:
    assert ("TANE_INSECURE must be true or false",) == problems_of({"TANE_INSECURE": "perhaps"})
