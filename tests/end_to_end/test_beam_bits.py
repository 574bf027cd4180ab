"""Beam searches keep their bits too, whatever shares their steps; and other people's answers beside them do."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.bits.conditions import CONDITIONS, Setting
from tests.bits.laboratory import Laboratory, Truth, prompts_for
from tests.bits.questions import half_of, questions_of, searched, searches_of
from tests.tiny_model import TinyShape, write_tiny_gguf

SHAPE = TinyShape(context=1024, width=96, heads=6, kv_heads=2, head_width=16, feed_forward=160)
LENGTHS = (1, 31, 32, 33, 64, 97, 200)
NEW_TOKENS = 36
"""So that each beam's own pages end inside its text."""
PLAIN = sorted(set(CONDITIONS) - {"several samples"})


@pytest.fixture(scope="module")
def setting(tmp_path_factory: pytest.TempPathFactory) -> Setting:
    model = write_tiny_gguf(tmp_path_factory.mktemp("model") / "tiny.gguf", shape=SHAPE, format="Q8_0")
    prompts = prompts_for(Laboratory(model), LENGTHS)[: len(LENGTHS)]
    return Setting(model, tuple(searches_of(prompts, NEW_TOKENS)), {"threads": 2}, scalar_questions=3)


@pytest.fixture(scope="module")
def truth(setting: Setting) -> Truth:
    return Truth(setting.laboratory(threads=1))


@pytest.mark.parametrize("condition", PLAIN)
def test_a_search_has_the_bits_of_the_search_alone_and_cold(condition: str, setting: Setting, truth: Truth) -> None:
    for question, bits in CONDITIONS[condition](setting.few(7)):
        assert truth(question) == bits


def test_searches_differ(setting: Setting, truth: Truth) -> None:
    """What is compared tells the questions apart."""
    answers = [truth(question) for question in setting.questions]

    assert len(set(answers)) == len(answers)


def test_searches_beside_them_change_no_bit_of_samples(setting: Setting, truth: Truth) -> None:
    samples = half_of(questions_of([question.prompt_ids for question in setting.questions[::2]], NEW_TOKENS))
    laboratory = setting.laboratory()

    together = laboratory.ask_together([*samples, *setting.questions])

    assert [truth(question) for question in (*samples, *setting.questions)] == together


def test_all_returned_texts_of_a_search_keep_their_bits(setting: Setting, truth: Truth) -> None:
    """Their order too, whoever runs beside them."""
    questions = [replace(each, sample_count=2) for each in setting.questions[:6]]

    together = setting.laboratory().ask_together(questions)

    assert [truth(question) for question in questions] == together
    for question, (best, *_) in zip(setting.questions, together, strict=False):
        assert truth(question) == (best,)


@pytest.mark.slow
def test_the_default_model_gives_equal_bits_on_any_number_of_threads(default_model_path: Path) -> None:
    prompt = Laboratory(default_model_path, cache_bytes=1 << 27).model.tokenizer.encode("The capital of France")
    question = replace(searched(prompt, 12, 4, length_penalty=1.0, ignore_eos=False), sample_count=4)

    answers = [Laboratory(default_model_path, cache_bytes=1 << 27, threads=threads).ask(question) for threads in (1, 2)]

    assert answers[0] == answers[1]
    assert len(answers[0]) == 4
