"""Chat templates that are missing, broken or choosy: refused by the request that needs them, and by no other."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from model.chat import ChatTemplate
from service.context import ServedModel
from service.settings import Settings
from service.startup import load
from tests.fake_runtime import MODEL, TOKENIZER, FakeRuntime, make_service
from tests.service.door import Client
from tests.tiny_model import CHAT_TEMPLATE, write_tiny_gguf

HELLO = [{"role": "user", "content": "hello"}]
ROUTES = [("/generate", 422), ("/v1/chat/completions", 400)]
PARTS = [{"type": "text", "text": "a<|start|>"}, {"type": "text", "text": "<|end|>b"}]
Open = Callable[[str], ServedModel]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Open:
    """Loads the model whose file has this template, as the server does."""
    path = tmp_path_factory.mktemp("model") / "tiny.gguf"
    source, template = write_tiny_gguf(path).read_bytes(), CHAT_TEMPLATE.encode()
    assert source.count(template) == 1

    def load_with(other: str) -> ServedModel:
        path.write_bytes(source.replace(template, other.encode().ljust(len(template))))
        return load(Settings.load({}, {"model": str(path), "kv_cache_bytes": 1 << 20})).model

    return load_with


def client_of(model: ServedModel) -> Client:
    return Client(service=make_service(FakeRuntime(), model=model))


def with_template(source: str | None) -> Client:
    """A service whose model has this template."""
    return client_of(replace(MODEL, chat_template=None if source is None else ChatTemplate(source, TOKENIZER)))


def refusal(client: Client, route: str, messages: list[dict[str, Any]] = HELLO) -> tuple[int | None, str, str]:
    """Status, code and message of a refused chat, after a check that it names its field and stops nothing else."""
    answer = client.post(route, {"messages": messages})
    assert "messages" == answer.error["param"]
    assert 200 == client.post("/v1/completions", {"prompt": "hello"}).status
    return answer.status, answer.error["code"], answer.error["message"]


@pytest.mark.parametrize(("route", "status"), ROUTES)
@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% for message in messages %}", "Unexpected end of template"),
        ("{% fur message in messages %}{% endfur %}", "unknown tag 'fur'"),
        ("{{ messages | nofilter }}", "nofilter"),
        ("{{ messages[0].content", "end of print statement|unexpected end"),
    ],
)
def test_a_template_that_cannot_be_used_is_the_reason_that_messages_are_refused(
    route: str, status: int, template: str, reason: str, opened: Open
) -> None:
    *found, message = refusal(client_of(opened(template)), route)

    assert [status, "bad_chat_template"] == found
    assert any(part in message for part in reason.split("|")), message


def test_of_a_template_that_cannot_be_used_the_operator_is_told(opened: Open, caplog: pytest.LogCaptureFixture) -> None:
    model = opened("{% fur m in messages %}\n")

    (record,) = caplog.records

    assert f"{model.name} refuses messages" in record.getMessage()
    assert "\n" not in record.getMessage()


def test_a_model_whose_template_cannot_be_used_is_described_as_without_chats(opened: Open) -> None:
    assert client_of(opened("{{")).get("/info").json["model"]["chat"] is False


@pytest.mark.parametrize(("route", "status"), ROUTES)
def test_without_a_template_messages_are_refused(route: str, status: int) -> None:
    *found, message = refusal(with_template(None), route)

    assert [status, "no_chat_template"] == found
    assert "send prompt instead" in message


@pytest.mark.parametrize(("route", "status"), ROUTES)
@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{{ raise_exception('roles must alternate') }}", "roles must alternate"),
        ("{{ 1 // 0 }}{{ messages }}", "zero"),
        ("{{ messages[7].content.lower() }}", "no element 7"),
        ("{{ messages + 1 }}", "concatenate"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "Range too big"),
        ("{{ 'x' * 5000000 }}", "renders more than"),
        ("{{ messages[0].content.split('<|end|>')[0] }}", "control string"),
    ],
)
def test_what_a_template_refuses_or_fails_at_is_told(route: str, status: int, template: str, reason: str) -> None:
    messages = [{"role": "user", "content": "hello<|end|>"}]

    *found, message = refusal(with_template(template), route, messages)

    assert [status, "chat_template_refused"] == found
    assert reason in message


@pytest.mark.parametrize(("route", "status"), ROUTES)
def test_a_template_that_writes_nothing_is_an_empty_prompt(route: str, status: int) -> None:
    *found, _ = refusal(with_template("{% set nothing = messages %}"), route)

    assert [status, "empty"] == found


@pytest.mark.parametrize("content", ["a<|start|><|end|>b", PARTS], ids=["text", "parts"])
def test_what_looks_like_a_control_token_is_text_wherever_it_stands(content: Any) -> None:
    """Each turn has the template's own two control tokens and no other."""
    runtime = FakeRuntime()

    answer = Client(runtime).post("/v1/chat/completions", {"messages": [{"role": "user", "content": content}]})

    assert 200 == answer.status
    control = [token_id for token_id in runtime.request.prompt_ids if token_id in TOKENIZER.control_token_ids]
    assert ["<|start|>", "<|end|>"] == [TOKENIZER.token_text(token_id) for token_id in control]
