"""Two public clients that use OpenAI's API in ways of their own: LangChain's chat model and agents of Pydantic AI."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import openai
import pytest

from tests.live import Live

pytestmark = pytest.mark.slow

QUESTION = "Name a fruit."
MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": QUESTION}]
TURNS = [("system", "Be brief."), ("human", QUESTION)]
Chat = Callable[..., Any]


@pytest.fixture(scope="module")
def expected(live: Live) -> str:
    """What `/generate` answers to the same conversation."""
    with live.client() as http:
        body = {"messages": MESSAGES, "temperature": 1.5, "seed": 7, "max_new_tokens": 12, "ignore_eos": True}
        return str(http.post("/generate", json=body).json()["text"])


@pytest.fixture(scope="module")
def langchain(live: Live) -> Iterator[Chat]:
    """Makes LangChain's chat model with more options. Its connections are ours, so that they are closed."""
    from langchain_openai import ChatOpenAI

    with openai.DefaultHttpxClient() as http:

        def chat(**given: Any) -> Any:
            return ChatOpenAI(
                base_url=f"{live.url}/v1",
                api_key=lambda: "none",
                model="tiny",
                temperature=1.5,
                seed=7,
                max_completion_tokens=12,
                max_retries=0,
                http_client=http,
                extra_body={"ignore_eos": True},
                **given,
            )

        yield chat


def test_langchain_asks(langchain: Chat, expected: str) -> None:
    answer = langchain().invoke(TURNS)

    assert (expected, "length") == (answer.content, answer.response_metadata["finish_reason"])


def test_langchain_streams(langchain: Chat, expected: str) -> None:
    assert expected == "".join(piece.content for piece in langchain().stream(TURNS))


def test_langchain_counts_the_tokens_of_a_stream(langchain: Chat) -> None:
    *_, last = [piece for piece in langchain(stream_usage=True).stream(TURNS) if piece.usage_metadata]

    assert 12 == last.usage_metadata["output_tokens"]


def test_langchain_asks_for_many_at_once(langchain: Chat, expected: str) -> None:
    answers = langchain().batch([TURNS] * 4)

    assert [expected] * 4 == [answer.content for answer in answers]


def test_langchain_reads_log_probabilities(langchain: Chat) -> None:
    answer = langchain(logprobs=True, top_logprobs=2).invoke(TURNS)

    assert [2] * 12 == [len(token["top_logprobs"]) for token in answer.response_metadata["logprobs"]["content"]]


def with_agent(live: Live, use: Callable[[Any], Awaitable[Any]]) -> Any:
    """What `use` makes of an agent of Pydantic AI."""
    from pydantic_ai import Agent
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    settings: Any = {"temperature": 1.5, "seed": 7, "max_tokens": 12, "extra_body": {"ignore_eos": True}}

    async def run() -> Any:
        async with openai.AsyncOpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0) as client:
            model = OpenAIChatModel("tiny", provider=OpenAIProvider(openai_client=client))
            return await use(Agent(model, system_prompt="Be brief.", model_settings=settings))

    return asyncio.run(run())


def test_an_agent_of_pydantic_ai_asks(live: Live, expected: str) -> None:
    answer = with_agent(live, lambda agent: agent.run(QUESTION))

    assert (expected, 12) == (answer.output, answer.usage.output_tokens)


def test_an_agent_of_pydantic_ai_streams(live: Live, expected: str) -> None:
    async def ask(agent: Any) -> str:
        async with agent.run_stream(QUESTION) as answer:
            return "".join([piece async for piece in answer.stream_text(delta=True)])

    assert expected == with_agent(live, ask)


def test_an_agent_of_pydantic_ai_goes_on_with_its_history(live: Live) -> None:
    async def ask(agent: Any) -> Any:
        first = await agent.run(QUESTION)
        return await agent.run("And another?", message_history=first.all_messages())

    assert 12 == with_agent(live, ask).usage.output_tokens


def test_tools_are_refused_by_name_to_pydantic_ai(live: Live) -> None:
    from pydantic_ai.exceptions import ModelHTTPError

    async def ask(agent: Any) -> Any:
        agent.tool_plain(weather)
        return await agent.run(QUESTION)

    with pytest.raises(ModelHTTPError, match=r"tools is not served"):
        with_agent(live, ask)


def weather() -> str:
    """How the weather is."""
    return "sunny"
