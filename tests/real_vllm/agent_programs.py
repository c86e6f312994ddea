"""Unmodified agents of three packages, as programs: their Python needs no Ludic.

    python agent_programs.py openai|anthropic|smolagents < sessions.json

The input is a list of {"root_url", "key"}: an episode each. Prints the number of right answers.
"""

import asyncio
import json
import sys

TOOL = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
    "required": ["a", "b"],
}
QUESTIONS = ("What is 12 + 30? Use the tool.", "Now add 5 to that.")
AT_ONCE = 16


async def openai_episode(client, session):
    """A loop of chat completions with a tool, two questions in one dialog."""
    client = client.with_options(base_url=session["root_url"] + "/v1", api_key=session["key"])
    function = {"name": "add", "description": "Add two integers.", "parameters": TOOL}
    messages = [{"role": "system", "content": "You are a calculator."}]
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        while True:
            made = await client.chat.completions.create(
                model="gpt-4o",
                messages=messages,
                tools=[{"type": "function", "function": function}],
            )
            message = made.choices[0].message
            messages.append(message.model_dump(exclude_none=True))
            if not message.tool_calls:
                break
            for call in message.tool_calls:
                numbers = json.loads(call.function.arguments)
                result = str(numbers["a"] + numbers["b"])
                messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    return "47" in messages[-1]["content"]


async def anthropic_episode(client, session):
    """The same with Anthropic's messages, which are streamed."""
    client = client.with_options(base_url=session["root_url"], api_key=session["key"])
    tool = {"name": "add", "description": "Add two integers.", "input_schema": TOOL}
    messages = []
    for question in QUESTIONS:
        messages.append({"role": "user", "content": question})
        while True:
            async with client.messages.stream(
                model="claude-sonnet-4-5",
                max_tokens=200,
                system="You are a calculator.",
                messages=messages,
                tools=[tool],
            ) as stream:
                message = await stream.get_final_message()
            messages.append({"role": "assistant", "content": message.content})
            if message.stop_reason != "tool_use":
                break
            results = [
                {
                    "type": "tool_result",
                    "tool_use_id": block.id,
                    "content": str(block.input["a"] + block.input["b"]),
                }
                for block in message.content
                if block.type == "tool_use"
            ]
            messages.append({"role": "user", "content": results})
    return "47" in message.content[0].text


def smolagents_episode(session):
    """A ToolCallingAgent, which ends by its tool final_answer."""
    from smolagents import LogLevel, OpenAIServerModel, ToolCallingAgent, tool

    @tool
    def add(a: int, b: int) -> int:
        """Add two integers.

        Args:
            a: the first
            b: the second
        """
        return a + b

    model = OpenAIServerModel(
        "gpt-4o", api_base=session["root_url"] + "/v1", api_key=session["key"]
    )
    agent = ToolCallingAgent(tools=[add], model=model, verbosity_level=LogLevel.OFF)
    return "42" in str(agent.run(QUESTIONS[0], max_steps=4))


async def main(kind, sessions):
    """Play all sessions; the number of right answers."""
    limit = asyncio.Semaphore(AT_ONCE)
    if kind == "openai":
        import openai

        client, episode = openai.AsyncOpenAI(base_url="http://x", api_key="x"), openai_episode
    elif kind == "anthropic":
        import anthropic

        client, episode = anthropic.AsyncAnthropic(api_key="x"), anthropic_episode
    else:
        client = None

    async def play(session):
        async with limit:
            if client is None:
                return await asyncio.to_thread(smolagents_episode, session)
            return await episode(client, session)

    return sum(await asyncio.gather(*map(play, sessions)))


if __name__ == "__main__":
    # Without arguments, as `make bench` runs every program, there is nothing to play.
    print(asyncio.run(main(sys.argv[1], json.load(sys.stdin))) if sys.argv[1:] else __doc__)
