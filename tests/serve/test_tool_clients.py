"""The clients that agents use, against a real server: tools in loops, streamed and not."""

import asyncio
import json

import agents
import anthropic
import openai
import pytest
from openai.types.responses import ResponseTextDeltaEvent

from drivers.chat_client import ADD, CHAT, USER, call, chat_client

TEXT = f"<think>\nhm\n</think>\n\nI ask. {call('add', a=1, b=2)}"


@pytest.fixture(scope="module")
def server():
    with chat_client() as running:
        yield running


@pytest.fixture
def client(server):
    with openai.OpenAI(base_url=f"{server.server.url}/v1", api_key="none", max_retries=0) as client:
        yield client


def test_a_chat_with_tools(server, client):
    server.say(TEXT)
    asked = {"model": "toy", "messages": USER, "tools": [ADD]}
    message = client.chat.completions.create(**asked).choices[0].message
    with client.chat.completions.stream(**asked) as stream:
        streamed = stream.get_final_completion().choices[0].message
    for found in (message, streamed):
        assert found.content == "I ask."
        assert [one.function.name for one in found.tool_calls] == ["add"]
        assert json.loads(found.tool_calls[0].function.arguments) == {"a": 1, "b": 2}
    server.say("It is 3.")
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "3"}
    history = [*USER, message.to_dict(), result]
    reply = client.chat.completions.create(model="toy", messages=history, tools=[ADD])
    assert reply.choices[0].message.content == "It is 3."


def test_a_response_with_tools(server, client):
    server.say(TEXT)
    asked = {"model": "toy", "input": "x", "tools": [{"type": "function", **ADD["function"]}]}
    response = client.responses.create(**asked)
    with client.responses.stream(**asked) as stream:
        kinds = {event.type for event in stream}
        streamed = stream.get_final_response()
    assert "response.function_call_arguments.done" in kinds
    for found in (response, streamed):
        assert [one.type for one in found.output] == ["reasoning", "message", "function_call"]
        assert found.output_text == "I ask."
        assert found.output[0].content[0].text == "hm"
        assert json.loads(found.output[2].arguments) == {"a": 1, "b": 2}
    assert client.responses.retrieve(response.id).output == response.output
    assert client.responses.input_items.list(response.id).data[0].content[0].text == "x"
    counted = client.responses.input_tokens.count(**asked)
    assert counted.input_tokens == response.usage.input_tokens
    client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


def test_a_message_with_tools(server):
    tool = {"name": "add", "input_schema": ADD["function"]["parameters"]}
    asked = {"model": "toy", "max_tokens": 500, "messages": USER, "tools": [tool]}
    server.say(TEXT)
    with anthropic.Anthropic(base_url=server.server.url, api_key="none", max_retries=0) as client:
        message = client.messages.create(**asked)
        with client.messages.stream(**asked) as stream:
            streamed = stream.get_final_message()
        for found in (message, streamed):
            assert [one.type for one in found.content] == ["thinking", "text", "tool_use"]
            assert found.content[2].input == {"a": 1, "b": 2}
            assert found.stop_reason == "tool_use"
        del asked["max_tokens"]
        counted = client.messages.count_tokens(**asked)
        assert counted.input_tokens == message.usage.input_tokens
        server.say("It is 3.")
        result = {"type": "tool_result", "tool_use_id": message.content[2].id, "content": "3"}
        history = [
            *USER,
            {"role": "assistant", "content": message.content},
            {"role": "user", "content": [result]},
        ]
        last = client.messages.create(**asked | {"messages": history}, max_tokens=50)
        assert last.content[0].text == "It is 3."
        with pytest.raises(anthropic.BadRequestError, match="temperature"):
            client.messages.create(**asked, max_tokens=5, extra_body={"temperature": -1})


@pytest.mark.parametrize("kind", ["chat", "responses"])
@pytest.mark.parametrize("is_streamed", [False, True])
def test_an_agent_runs_its_loop(server, kind, is_streamed):
    """The model asks for the tool first, and then says what came of it."""
    sums = []

    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        sums.append(a + b)
        server.say("It is ", "3.")
        return a + b

    server.say(*TEXT)

    async def run():
        async with openai.AsyncOpenAI(
            base_url=f"{server.server.url}/v1", api_key="none", max_retries=0
        ) as client:
            makers = {
                "chat": agents.OpenAIChatCompletionsModel,
                "responses": agents.OpenAIResponsesModel,
            }
            agent = agents.Agent(
                name="adder",
                instructions="Add.",
                model=makers[kind](model="toy", openai_client=client),
                tools=[agents.function_tool(add)],
            )
            if not is_streamed:
                return (await agents.Runner.run(agent, "1 + 2?")).final_output, ""
            running = agents.Runner.run_streamed(agent, "1 + 2?")
            deltas = [
                event.data.delta
                async for event in running.stream_events()
                if event.type == "raw_response_event"
                and isinstance(event.data, ResponseTextDeltaEvent)
            ]
            return running.final_output, "".join(deltas)

    agents.set_tracing_disabled(True)
    answer, streamed = asyncio.run(run())
    assert (answer, sums) == ("It is 3.", [3])
    if is_streamed:
        assert streamed == "I ask.It is 3."
    roles = [one["role"] for one in server.tokenizer.messages]
    assert roles == ["system", "user", "assistant", "tool"]


def test_a_client_that_hangs_up_leaves_the_log_alone(server, caplog):
    """Case 35 of reports-2: a fast model, and clients that go in the middle of its stream."""
    server.say(*("word " for _ in range(1500)))
    with caplog.at_level("WARNING"):
        for _ in range(4):
            body = {"messages": USER, "stream": True}
            with server.server.client.stream("POST", CHAT, json=body) as reply:
                next(reply.iter_raw(200))
        server.server.wait_until(lambda: not server.server.worker.num_open_answers)
    assert len(caplog.records) <= 4
    assert not [one for one in caplog.records if "socket.send" in one.getMessage()]
