"""What goes wrong in servers like this one, asked of a whole server: company, edges of values, what streams carry."""

from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import httpx
import pytest

from model.loading.gguf import load_gguf
from model.tokenizer import Tokenizer
from service.client import Delta, GenerateFields, Response, TaneClient
from service.settings import Settings
from tests.live import Live, live_server
from tests.tiny_model import TinyShape, write_tiny_gguf

TEXT = "The seed lies in the ground and waits for the rain. "
NEW = 16
Fields = dict[str, Any]
NOISE: list[Mapping[str, Any]] = [
    {"prompt": TEXT * 6, "temperature": 1.5, "max_new_tokens": 30},
    {"prompt": TEXT * 2 + "When", "temperature": 0, "max_new_tokens": 9, "session_id": "noise"},
    {"prompt": "Whoever", "num_return": 3, "max_new_tokens": 20, "logprobs": {"top": 5}},
    {"prompt": TEXT, "max_new_tokens": 5, "logprobs": {"prompt": True}, "explain": True},
    {"prompt": TEXT * 3, "max_new_tokens": 25, "repetition_penalty": 1.5, "use_cache": False},
]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    return write_tiny_gguf(path, shape=TinyShape(context=1024), format="Q4_1")


@pytest.fixture(scope="module")
def live(model: Path) -> Iterator[Live]:
    with live_server(Settings.load({}, {"model": str(model), "kv_cache_bytes": 4 << 20})) as server:
        yield server


@pytest.fixture
def client(live: Live) -> Iterator[TaneClient]:
    with TaneClient(live.url) as client:
        yield client


def ask(client: TaneClient, **fields: Any) -> Response:
    return client.generate(**cast(GenerateFields, fields))


def stream(client: TaneClient, **fields: Any) -> Iterator[Delta | Response]:
    return client.stream(**cast(GenerateFields, fields))


def under_load(live: Live, fields: Fields) -> list[Response]:
    """The answers to a question that is asked again and again while others keep the server busy."""

    def noise(number: int) -> None:
        body = {**NOISE[number % len(NOISE)], "seed": number}
        if "session_id" in body:
            body["session_id"] = f"noise-{number}"
        assert 200 == httpx.post(f"{live.url}/generate", json=body, timeout=60).status_code

    with ThreadPoolExecutor(4) as pool, TaneClient(live.url) as client:
        noises = [pool.submit(noise, number) for number in range(20)]
        answers = [ask(client, **fields) for _ in range(6)]
        for each in noises:
            each.result()
    return answers


GREEDY: Fields = {"prompt": TEXT, "temperature": 0, "max_new_tokens": NEW, "logprobs": {"top": 3}}
SEEDED: Fields = {**GREEDY, "temperature": 1.2, "seed": 17}


@pytest.mark.parametrize("cached", [True, False], ids=["cached", "uncached"])
@pytest.mark.parametrize("fields", [GREEDY, SEEDED], ids=["greedy", "seeded"])
def test_text_and_log_probabilities_are_the_same_alone_and_under_a_noisy_load(
    fields: Fields, cached: bool, live: Live, client: TaneClient
) -> None:
    alone = ask(client, **{**fields, "use_cache": False}).completions

    answers = under_load(live, {**fields, "use_cache": cached})

    assert [alone] * len(answers) == [answer.completions for answer in answers]


def test_a_text_of_several_is_the_same_however_many_there_are(client: TaneClient) -> None:
    """Sample i of a seed is one text, whether two or five are asked for."""
    asked: Fields = {**SEEDED, "ignore_eos": True}
    five = ask(client, **asked, num_return=5).completions

    assert five[:2] == ask(client, **asked, num_return=2).completions
    assert five[:1] == ask(client, **asked).completions


def test_texts_of_one_seed_differ_from_each_other(client: TaneClient) -> None:
    texts = ask(client, **{**SEEDED, "temperature": 2}, ignore_eos=True, num_return=8).completions

    assert len({text.token_ids for text in texts}) > 4


@pytest.mark.parametrize("seed", [0, 1, 2**53 + 1, 2**63 - 1])
def test_the_seed_that_was_sent_is_the_one_that_is_told(seed: int, client: TaneClient) -> None:
    assert seed == ask(client, **{**GREEDY, "seed": seed}).seed


def test_the_seed_that_was_drawn_and_told_gives_the_text_again(client: TaneClient) -> None:
    first = ask(client, **{**GREEDY, "temperature": 1.5})

    assert first.completions == ask(client, **{**GREEDY, "temperature": 1.5, "seed": first.seed}).completions


@pytest.mark.parametrize(
    "narrow",
    [{"temperature": 5e-324}, {"temperature": 1e-45}, {"top_p": 5e-324}, {"top_p": 1e-4}, {"min_p": 1}, {"top_k": 1}],
    ids=str,
)
def test_the_narrowest_values_are_greedy(narrow: dict[str, float], client: TaneClient) -> None:
    greedy = ask(client, **GREEDY)

    sampled = ask(client, **{**GREEDY, "temperature": 1, "seed": 3, **narrow})

    assert greedy.completions == sampled.completions


@pytest.mark.parametrize("name", ["top_p", "temperature", "repetition_penalty"])
def test_a_value_that_is_refused_leaves_the_server_as_it_was(name: str, live: Live, client: TaneClient) -> None:
    expected = ask(client, **GREEDY).completions

    refused = httpx.post(f"{live.url}/generate", json={**GREEDY, name: -1})

    assert 422 == refused.status_code
    assert expected == ask(client, **GREEDY).completions


@pytest.mark.parametrize("of", ["model", "sampled"])
def test_no_log_probability_stands_for_another(of: str, client: TaneClient) -> None:
    """Twenty are asked for and three are left: what is not there is not listed, and no huge number says so."""
    response = ask(
        client,
        prompt=TEXT,
        max_new_tokens=NEW,
        temperature=1,
        seed=1,
        top_k=3,
        banned_token_ids=list(range(5, 60)),
        logprobs={"top": 20, "of": of, "prompt": True},
    )

    (completion,) = response.completions
    assert completion.logprobs is not None
    assert {3 if of == "sampled" else 20} == {len(entry["top"]) for entry in completion.logprobs}
    entries = [*completion.logprobs, *(response.prompt_logprobs or ())[1:]]
    numbers = [each["logprob"] for entry in entries if entry for each in (entry, *entry["top"])]
    assert all(-1000 < number <= 0 for number in numbers)


@pytest.mark.parametrize("of", ["model", "sampled"])
def test_the_answer_says_of_which_distribution_it_speaks(of: str, client: TaneClient) -> None:
    answer = ask(client, prompt=TEXT, max_new_tokens=2, temperature=0.5, logprobs={"of": of})

    assert of == answer.parameters["logprobs"]["of"]


def test_the_two_distributions_are_not_the_same(client: TaneClient) -> None:
    """What a filter dropped makes the rest likelier."""
    asked: Fields = {"prompt": TEXT, "max_new_tokens": NEW, "temperature": 1, "top_k": 5, "seed": 1}
    model, sampled = (
        ask(client, **asked, logprobs={"of": of}).completions[0].logprobs or () for of in ("model", "sampled")
    )

    assert NEW == len(model)
    assert all(before["logprob"] < after["logprob"] for before, after in zip(model, sampled, strict=True))


STOPPED: Fields = {"prompt": TEXT, "temperature": 1.4, "seed": 5, "max_new_tokens": 60, "ignore_eos": True}


@pytest.fixture(scope="module")
def stop(live: Live) -> str:
    """Three characters in the middle of what would be said, which no token holds alone."""
    with TaneClient(live.url) as client:
        text = ask(client, **STOPPED).text
    return text[len(text) // 2 : len(text) // 2 + 3]


@pytest.mark.parametrize("form", ["prompt", "prompt_tokens"])
def test_a_stop_counts_whatever_form_the_prompt_has(form: str, stop: str, model: Path, client: TaneClient) -> None:
    tokenizer = Tokenizer(load_gguf(model).vocabulary)
    fields = {name: value for name, value in STOPPED.items() if name != "prompt"}
    fields[form] = TEXT if form == "prompt" else tokenizer.encode(TEXT)

    response = ask(client, **fields, stop=[stop])

    assert "stop" == response.finish_reason
    assert ask(client, **STOPPED).text.partition(stop)[0] == response.text


def test_a_stop_leaves_no_trace_in_a_stream(stop: str, client: TaneClient) -> None:
    *deltas, response = stream(client, **STOPPED, stop=[stop])

    assert isinstance(response, Response)
    assert response.text == "".join(delta.text for delta in deltas if isinstance(delta, Delta))
    assert stop not in response.text
    assert ask(client, **STOPPED, stop=[stop]).text == response.text


@pytest.mark.parametrize("stops", [[], ["e"]], ids=["without a stop", "with a stop"])
def test_text_tokens_and_log_probabilities_of_a_piece_belong_together(
    stops: list[str], model: Path, client: TaneClient
) -> None:
    """Also where random tokens break characters up: a piece is the decoding of its own tokens."""
    tokenizer = Tokenizer(load_gguf(model).vocabulary)
    *pieces, response = stream(client, **{**STOPPED, "temperature": 2}, stop=stops, logprobs={"top": 1})

    deltas = [piece for piece in pieces if isinstance(piece, Delta)]
    for delta in deltas:
        assert delta.logprobs is not None
        assert list(delta.token_ids) == [entry["token_id"] for entry in delta.logprobs]
    for delta in deltas[:-1]:
        data = b"".join(tokenizer.token_bytes(token_id) for token_id in delta.token_ids)
        assert data.decode(errors="replace") == delta.text
    assert isinstance(response, Response)
    assert response.token_ids == tuple(token_id for delta in deltas for token_id in delta.token_ids)


def test_ids_are_always_of_the_vocabulary_and_of_the_kept_set(client: TaneClient) -> None:
    """Over many draws at the highest temperature, each among the five that the filter left."""
    response = ask(
        client, prompt=TEXT, temperature=2, top_k=5, num_return=16, max_new_tokens=40, ignore_eos=True, explain=True
    )

    for completion in response.completions:
        assert completion.explain is not None
        for token_id, told in zip(completion.token_ids, completion.explain, strict=True):
            assert 0 <= token_id < TinyShape().vocabulary
            assert token_id in [each["token_id"] for each in told["stages"][-1]["top"]]


def test_a_text_that_fills_the_context_ends_there_and_drops_nothing_of_it(client: TaneClient, tmp_path: Path) -> None:
    """The same weights with room for more say the same so far: no token has moved or was left out to go on."""
    context = 96
    small = write_tiny_gguf(tmp_path / "small.gguf", shape=TinyShape(context=context), format="Q4_1")
    fields: Fields = {"prompt": TEXT, "temperature": 0, "ignore_eos": True, "logprobs": {"top": 1}}

    with live_server(Settings.load({}, {"model": str(small)})) as server, TaneClient(server.url) as other:
        full = ask(other, **fields)
    more = ask(client, **fields, max_new_tokens=200)

    (end,), (going_on,) = full.completions, more.completions
    assert ("length", context) == (end.finish_reason, full.usage.prompt_tokens + full.usage.generated_tokens)
    assert end.token_ids == going_on.token_ids[: len(end.token_ids)]
    assert end.logprobs == (going_on.logprobs or ())[: len(end.token_ids)]
