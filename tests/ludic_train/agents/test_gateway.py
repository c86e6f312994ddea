"""Sessions of the gateway as the openai SDK sees them, and the rows that they become."""

import asyncio
import json

import openai
import pytest
from scripted_engine import ScriptedEngine, tokenizer

import ludic_gym as lg
from ludic_gym.types import Decision, Rollout, Sampling, Step, Task
from ludic_train.agents.gateway import Gateway
from ludic_train.errors import ServerError, SessionOver
from ludic_train.rows import trajectory_from

ADD = {"name": "add", "description": "Add.", "parameters": {"type": "object", "properties": {}}}
CHAT_TOOLS = [{"type": "function", "function": ADD}]


def sdk(gateway, session, **options):
    return openai.AsyncOpenAI(base_url=gateway.base_url(session), api_key="any", **options)


def gives_up(after_s):
    """A client's limits: it has sent its request, on a busy machine too, when it gives up."""
    return openai.Timeout(10.0, read=after_s)


def rows_of(session):
    """Rows of the session's calls so far, all in one step."""
    decision = Decision(action="", completions=tuple(c.completion for c in session.calls))
    step = Step(observation="", decision=decision, reward=1.0, terminated=True)
    return trajectory_from(Rollout(task=Task(env_id="agent"), steps=(step,))).rows


async def ask(client, messages, **fields):
    made = await client.chat.completions.create(
        model="any", messages=messages, tools=CHAT_TOOLS, **fields
    )
    return made.choices[0].message


async def loop(client, question="1 + 2?", turns=1):
    """An agent with a tool, in the manner of every tutorial; its messages."""
    messages = [{"role": "user", "content": question}]
    for _ in range(turns):
        message = await ask(client, messages)
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            # Arguments that were parsed and written again.
            call = call.model_dump()
            arguments = json.loads(call["function"]["arguments"])
            messages[-1]["tool_calls"][0]["function"]["arguments"] = json.dumps(arguments, indent=1)
            content = str(arguments["a"] + arguments["b"])
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": content})
        final = await ask(client, messages)
        messages.append({"role": "assistant", "content": f" {final.content}\n"})
        messages.append({"role": "user", "content": "Again!"})
    return messages


async def test_an_agent_with_tools_is_one_row_of_the_very_tokens(gateway, engine):
    session = gateway.open()
    async with sdk(gateway, session) as client:
        messages = await loop(client)
        assert messages[-2]["content"].strip() == "The sum is 3."
        await ask(client, messages)
    (row,) = rows_of(session)
    sampled = [each.completion_ids for each in engine.sampled]
    assert row.input_ids[row.action_mask].tolist() == [i for ids in sampled for i in ids]
    logprobs = [value for each in engine.sampled for value in each.logprobs]
    assert row.behavior_logprobs[row.action_mask] == pytest.approx(logprobs, abs=1e-7)


async def test_a_rewritten_history_and_another_system_prompt_are_rows_of_their_own(gateway):
    session = gateway.open()
    async with sdk(gateway, session) as client:
        messages = await loop(client)
        summary = [{"role": "user", "content": "Summary: the sum is 3. Again!"}]
        await ask(client, summary)
        await ask(client, [{"role": "system", "content": "You are a critic."}, messages[0]])
    assert len(rows_of(session)) == 3


async def test_sub_agents_that_take_turns_are_one_row_each(gateway):
    session = gateway.open()
    async with sdk(gateway, session) as client:
        first, second = (
            [{"role": "system", "content": name}, {"role": "user", "content": "hi"}]
            for name in ("planner", "worker")
        )
        for _ in range(3):
            for messages in (first, second):
                message = await ask(client, messages, tool_choice="none")
                messages.append({"role": "assistant", "content": message.content})
                messages.append({"role": "user", "content": "go on"})
    assert [int(row.action_mask.any()) for row in rows_of(session)] == [1, 1]


async def test_a_required_call_begins_in_the_prompt(engine):
    def reply(text):
        begun = text.rpartition("assistant\n")[2]
        return '{"a": 1}}\n</tool_call>' if begun else "no call"

    engine.reply = reply
    async with Gateway(engine, engine.tokenizer).running() as gateway:
        session = gateway.open()
        async with sdk(gateway, session) as client:
            choice = {"type": "function", "function": {"name": "add"}}
            question = [{"role": "user", "content": "?"}]
            message = await ask(client, question, tool_choice=choice)
            assert message.tool_calls[0].function.arguments == '{"a": 1}'
            made = message.model_dump(exclude_none=True)
            result = {"role": "tool", "tool_call_id": made["tool_calls"][0]["id"], "content": "1"}
            await ask(client, [*question, made, result])
        assert len(rows_of(session)) == 1


async def test_new_params_in_a_session_are_recorded_per_token(gateway, engine):
    session = gateway.open()
    async with sdk(gateway, session) as client:
        question = [{"role": "user", "content": "1 + 2?"}]
        message = await ask(client, question)
        engine.policy_version = 5
        made = message.model_dump(exclude_none=True)
        result = {"role": "tool", "tool_call_id": made["tool_calls"][0]["id"], "content": "3"}
        await ask(client, [*question, made, result])
    (row,) = rows_of(session)
    first, second = (len(each.completion_ids) for each in engine.sampled)
    assert row.versions[row.action_mask].tolist() == [0] * first + [5] * second


async def test_the_episodes_sampling_replaces_that_of_the_agent(gateway, engine):
    session = gateway.open(sampling=Sampling(temperature=0.7, max_tokens=50, seed=3))
    async with sdk(gateway, session) as client:
        question = [{"role": "user", "content": "?"}]
        await ask(client, question, temperature=0, top_p=0.1, max_tokens=20, stop=["#"])
        await ask(client, question, max_tokens=99)
    one, two = (each.sampling for each in engine.sampled)
    assert (one.temperature, one.top_p, one.max_tokens, one.stop) == (0.7, 1.0, 20, ("#",))
    assert (two.max_tokens, one.seed) == (50, 3)
    assert two.seed != 3


@pytest.mark.long
async def test_streams_give_the_same_answer(gateway):
    session = gateway.open()
    async with sdk(gateway, session) as client:
        question = [{"role": "user", "content": "1 + 2?"}]
        whole = await ask(client, question)
        parts = client.chat.completions.stream(model="m", messages=question, tools=CHAT_TOOLS)
        async with parts as stream:
            streamed = (await stream.get_final_completion()).choices[0].message
        assert streamed.content == whole.content == "I  add."
        made, known = streamed.tool_calls[0].function, whole.tool_calls[0].function
        assert (made.name, json.loads(made.arguments)) == (known.name, json.loads(known.arguments))
        flat = [{"type": "function", **ADD}]
        answer = await client.responses.create(model="m", input="1 + 2?", tools=flat)
        async with client.responses.stream(model="m", input="1 + 2?", tools=flat) as stream:
            final = await stream.get_final_response()
        shown = [[(i.type, getattr(i, "arguments", "")) for i in r.output] for r in (answer, final)]
        assert shown[0] == shown[1]
        assert [kind for kind, _ in shown[0]] == ["message", "function_call"]


async def test_a_response_is_continued_by_its_id(gateway):
    session = gateway.open()
    flat = [{"type": "function", **ADD}]
    async with sdk(gateway, session) as client:
        first = await client.responses.create(model="m", input="1 + 2?", tools=flat)
        call = first.output[-1]
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "3"}
        second = await client.responses.create(
            model="m", input=[result], previous_response_id=first.id, tools=flat
        )
        assert second.output_text == "The sum is 3."
        with pytest.raises(openai.AuthenticationError, match="no response"):
            await client.responses.create(model="m", input="?", previous_response_id="resp_x")
    assert len(rows_of(session)) == 1


async def test_a_port_in_use_is_an_error_each_time(gateway, engine):
    # The second of two episodes must not take the other server for this gateway.
    second = Gateway(engine, engine.tokenizer, port=gateway.port)
    for _ in range(2):
        with pytest.raises(ServerError, match="cannot listen"):
            await second.start()


async def test_a_request_that_was_lost_is_not_sampled_again(engine):
    engine.delay_s = 0.004
    async with Gateway(engine, engine.tokenizer).running() as gateway:
        session = gateway.open()
        # The first attempt ends by the client's time limit, the second one waits for its reply.
        async with sdk(gateway, session, timeout=gives_up(0.05), max_retries=8) as client:
            message = await ask(client, [{"role": "user", "content": "1 + 2?"}])
        assert message.content == "I  add."
        assert (len(engine.sampled), len(session.calls), session.undelivered) == (1, 1, 0)


async def test_a_reply_that_no_client_got_is_in_no_row(engine):
    engine.delay_s = 0.004
    async with Gateway(engine, engine.tokenizer).running() as gateway:
        session = gateway.open()
        async with sdk(gateway, session, timeout=gives_up(0.1), max_retries=0) as client:
            with pytest.raises(openai.APITimeoutError):
                await ask(client, [{"role": "user", "content": "1 + 2?"}])
        while not engine.sampled:
            await asyncio.sleep(0.01)
        assert (session.calls, session.undelivered) == ([], 1)


async def test_a_session_ends_at_its_deadline_and_its_requests_with_it(engine):
    engine.delay_s = 10.0
    async with Gateway(engine, engine.tokenizer).running() as gateway:
        session = gateway.open(deadline_s=1.0)
        async with sdk(gateway, session, max_retries=0) as client:
            with pytest.raises(openai.AuthenticationError, match="ended while"):
                await ask(client, [{"role": "user", "content": "?"}])
            with pytest.raises(openai.AuthenticationError, match="no session is open"):
                await ask(client, [{"role": "user", "content": "?"}])
        with pytest.raises(SessionOver):
            gateway.session(session.id)


@pytest.mark.long
async def test_two_hundred_sessions_at_once_are_kept_apart():
    engine = ScriptedEngine(lambda text: text.split("user\n")[1][:3], tokenizer())
    async with Gateway(engine, engine.tokenizer).running() as gateway:
        sessions = [gateway.open() for _ in range(200)]
        url = gateway.base_url(sessions[0]).split("/s/")[0] + "/v1"

        async def play(number, session):
            # By API key, where the others are by URL.
            messages = [{"role": "user", "content": f"{number:03d}"}]
            client = root.with_options(api_key=session.id)
            for _ in range(2):
                made = await client.chat.completions.create(model="m", messages=messages)
                messages.append(made.choices[0].message.model_dump(exclude_none=True))
                messages.append({"role": "user", "content": "on"})
            return messages[1]["content"]

        async with openai.AsyncOpenAI(base_url=url, api_key="none") as root:
            said = await asyncio.gather(*(play(i, s) for i, s in enumerate(sessions)))
    assert said == [f"{i:03d}" for i in range(200)]
    assert all(len(rows_of(session)) == 1 for session in sessions)


async def test_log_probs_of_a_reply_are_those_of_its_tokens(gateway):
    session = gateway.open()
    async with sdk(gateway, session) as client:
        made = await client.chat.completions.create(
            model="m", messages=[{"role": "user", "content": "hi"}], logprobs=True
        )
    values = [entry.logprob for entry in made.choices[0].logprobs.content]
    assert values == pytest.approx(list(session.calls[0].completion.logprobs))


ALL = {"temperature": 0.5, "top_p": 0.75, "max_tokens": 7, "seed": 3, "top_k": 9, "min_p": 0.125}
ASKED = [{"role": "user", "content": "Hi"}]
DIALECTS = {
    "chat/completions": ({"messages": ASKED, **ALL, "stop": "."}, ALL),
    "responses": (
        {"input": "Hi", "temperature": 0.5, "top_p": 0.75, "max_output_tokens": 7},
        {"temperature": 0.5, "top_p": 0.75, "max_tokens": 7},
    ),
    "messages": (
        {
            "messages": ASKED,
            "temperature": 0.5, "top_p": 0.75, "max_tokens": 7, "top_k": 9,
            "stop_sequences": ["."],
        },
        {"temperature": 0.5, "top_p": 0.75, "max_tokens": 7, "top_k": 9},
    ),
}  # fmt: skip


@pytest.mark.parametrize("engine", [True], indirect=True)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_each_field_of_a_request_reaches_the_engine(gateway, engine, http, dialect):
    body, expected = DIALECTS[dialect]
    session = gateway.open()
    url = f"{gateway.base_url(session)}/{dialect}"
    async with http.post(url, json={"model": "any", **body}) as response:
        assert response.status == 200, await response.text()
    (completion,) = engine.sampled
    sampling = completion.sampling
    assert {name: getattr(sampling, name) for name in expected} == expected
    assert sampling.stop == (() if dialect == "responses" else (".",))


async def test_calls_that_are_not_wanted_in_parallel_are_one(http, engine):
    call = '<tool_call>\n{"name": "add", "arguments": {}}\n</tool_call>'
    engine.reply = lambda prompt: call + call
    body = {"messages": ASKED, "tools": CHAT_TOOLS, "stream": True}
    async with Gateway(engine, engine.tokenizer).running() as gateway:
        url = f"{gateway.base_url(gateway.open())}/chat/completions"
        for fields, count in (({}, 2), ({"parallel_tool_calls": False}, 1)):
            async with http.post(url, json=body | fields) as response:
                assert (await response.text()).count('"name":"add"') == count


async def test_a_request_without_a_session_is_served_where_that_is_allowed(http, engine):
    async with Gateway(engine, engine.tokenizer, is_open=True).running() as gateway:
        url = f"{gateway.url}/v1/chat/completions"
        for key, status in (("any", 200), ("sk-ludic-forged", 401)):
            headers = {"Authorization": f"Bearer {key}"}
            async with http.post(url, json={"messages": ASKED}, headers=headers) as response:
                assert response.status == status
        async with http.get(f"{gateway.url}/version") as response:
            assert (await response.json())["version"] == lg.__version__
    assert gateway.sessions == {}


async def test_any_chat_client_can_be_served_whose_texts_are_recorded(http):
    client = lg.ScriptedClient(["four"])
    async with Gateway(client).running() as gateway:
        session = gateway.open()
        async with sdk(gateway, session) as agent:
            made = await agent.chat.completions.create(model="m", messages=ASKED)
    assert made.choices[0].message.content == "four"
    assert [call.content for call in session.calls] == ["four"]


async def test_sessions_are_opened_and_closed_with_the_token(http, engine, tmp_path):
    gateway = Gateway(engine, engine.tokenizer, token="secret", out=tmp_path)
    headers = {"Authorization": "Bearer secret"}
    async with gateway.running():
        async with http.post(f"{gateway.url}/sessions") as response:
            assert response.status == 401
        async with http.post(f"{gateway.url}/sessions", headers=headers) as response:
            opened = await response.json()
        async with openai.AsyncOpenAI(base_url=opened["base_url"], api_key="any") as client:
            await loop(client)
        direct = rows_of(gateway.session(opened["key"]))
        path = f"{gateway.url}/sessions/{opened['key']}/close"
        for reward in (b'"x"', b"NaN", b"-Infinity", b"1e999", b"1" + b"0" * 400):
            data = b'{"reward": ' + reward + b"}"
            async with http.post(path, data=data, headers=headers) as response:
                assert response.status == 400, reward
        for status in (200, 401):
            async with http.post(path, json={"reward": 0.5}, headers=headers) as response:
                assert response.status == status
    (file,) = await asyncio.to_thread(lambda: list(tmp_path.iterdir()))
    (rollout,) = lg.read_rollouts(file)
    assert rollout.total_reward == 0.5
    assert opened["key"] not in file.name
    # The very row that the session itself is.
    (row,), (expected,) = trajectory_from(rollout).rows, direct
    for name in ("input_ids", "action_mask", "behavior_logprobs", "versions"):
        assert getattr(row, name).tolist() == getattr(expected, name).tolist()


FLAT = {"type": "json_schema", "name": "color", "schema": {"type": "object"}}
CHAT_FORMAT = {"type": "json_schema", "json_schema": {"name": "color", "schema": {}}}


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("chat/completions", {"messages": ASKED, "response_format": CHAT_FORMAT}),
        ("responses", {"input": "?", "text": {"format": FLAT}}),
        ("messages", {"messages": ASKED, "output_config": {"format": FLAT}}),
    ],
)
async def test_a_format_other_than_text_is_refused(http, gateway, engine, path, body):
    url = f"{gateway.base_url(gateway.open())}/{path}"
    async with http.post(url, json=body) as response:
        assert (response.status, "not offered" in await response.text()) == (400, True)
    assert engine.sampled == []
