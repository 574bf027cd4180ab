"""Law one: the bits of an answer are a function of the question and of nothing else, on the engine that serves."""

from dataclasses import replace
from pathlib import Path

import pytest

from model.decoding.params import LogprobOptions
from tests.bits.conditions import CONDITIONS, Setting, available_isas
from tests.bits.laboratory import Laboratory, Truth, narrowest_gap, near_ties, prompts_for
from tests.bits.questions import LENGTHS, greedy, half_of, questions_of
from tests.tiny_model import FormatName, TinyShape, write_tiny_gguf

PLAIN = TinyShape(context=2048, width=96, heads=6, kv_heads=2, head_width=16, feed_forward=160)
UNTIED = TinyShape(context=2048, width=64, heads=4, kv_heads=1, head_width=24, feed_forward=96, tied=False)
NEW_TOKENS = 6
DEFAULT_CACHE = 1 << 28


def write_model(folder: Path, shape: TinyShape, format: FormatName) -> Path:
    return write_tiny_gguf(folder / f"{format}.gguf", shape=shape, format=format)


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """Weights as stored, an int8 cache, all lengths."""
    model = write_model(tmp_path_factory.mktemp("model"), PLAIN, "Q4_1")
    questions = half_of(questions_of(prompts_for(Laboratory(model), LENGTHS), NEW_TOKENS))
    return Setting(model, tuple(questions), {"threads": 2}, scalar_questions=6)


@pytest.fixture(scope="module")
def other_setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    """Weights rounded at load, a float16 cache, few lengths."""
    model = write_model(tmp_path_factory.mktemp("model"), UNTIED, "F16")
    questions = half_of(questions_of(prompts_for(Laboratory(model), (1, 33, 129, 140)), NEW_TOKENS))
    return Setting(model, tuple(questions), {"threads": 2, "kv_type": "float16"}, scalar_questions=3)


@pytest.fixture(scope="module")
def truth(setting: Setting) -> Truth:
    return Truth(setting.laboratory(threads=1))


@pytest.fixture(scope="module")
def other_truth(other_setting: Setting) -> Truth:
    return Truth(other_setting.laboratory(threads=1))


def test_there_are_enough_prompts(setting: Setting) -> None:
    lengths = {len(question.prompt_ids) for question in setting.questions}

    assert lengths >= {1, 31, 32, 33, 64, 65, 300, 1000}
    assert len({question.prompt_ids for question in setting.questions}) >= 20


@pytest.mark.parametrize("condition", CONDITIONS)
def test_the_bits_are_those_of_the_question_alone_and_cold(condition: str, setting: Setting, truth: Truth) -> None:
    for question, bits in CONDITIONS[condition](setting):
        assert truth(question) == bits


@pytest.mark.parametrize("condition", CONDITIONS)
def test_so_they_are_with_other_weights_and_another_cache(
    condition: str, other_setting: Setting, other_truth: Truth
) -> None:
    for question, bits in CONDITIONS[condition](other_setting):
        assert other_truth(question) == bits


def test_another_question_has_other_bits(setting: Setting, truth: Truth) -> None:
    """What is compared tells the questions apart; without this, equal bits would say nothing."""
    answers = [truth(question) for question in setting.questions]

    assert len(set(answers)) == len(answers)


def test_near_ties_are_found(setting: Setting) -> None:
    laboratory = setting.laboratory()
    questions = [greedy(prompt, 4, logprobs=LogprobOptions(2)) for prompt in near_ties(laboratory, setting.random())]

    gaps = [narrowest_gap(terminal) for terminal in laboratory.run([q.request(laboratory.new_id()) for q in questions])]

    assert max(gaps) < 0.02


@pytest.fixture(scope="module")
def default_setting(default_model_path: Path) -> Setting:
    laboratory = Laboratory(default_model_path, cache_bytes=DEFAULT_CACHE)
    questions = half_of(questions_of(prompts_for(laboratory, (7, 33, 129, 200)), 8))
    return Setting(default_model_path, tuple(questions), {}, DEFAULT_CACHE)


@pytest.fixture(scope="module")
def default_truth(default_setting: Setting) -> Truth:
    return Truth(default_setting.laboratory())


@pytest.mark.slow
def test_the_default_model_gives_the_scalar_bits_on_every_instruction_set(default_setting: Setting) -> None:
    """Two prompts, eight tokens after each."""
    two = replace(default_setting, questions=default_setting.questions[1:3])
    answers = {isa: list(CONDITIONS[f"on {isa}"](two)) for isa in available_isas()}

    assert dict.fromkeys(answers, answers["scalar"]) == answers


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["among 7 neighbours", "after an edit back and forth", "in chunks of 7"])
def test_the_default_model_gives_the_bits_of_the_question_alone_and_cold(
    condition: str, default_setting: Setting, default_truth: Truth
) -> None:
    for question, bits in CONDITIONS[condition](default_setting):
        assert default_truth(question) == bits
