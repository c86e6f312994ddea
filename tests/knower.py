"""A scripted model that knows the oracle's actions, and otherwise has what a model is given."""

import json
import re

import gymnasium as gym
from chat_server import MODELS, completion
from vault import VAULT

import ludic_gym as lg
from ludic_gym.clients.probe import QUESTION

# A game of some ten moves.
KWARGS = {"ludic/Game2048-v0": {"target": 16}}
LOST = "I do not know what to do."


def tasks_of(env_id, count=2):
    """Tasks of the id, the same on every call."""
    sampling = lg.Sampling(max_tokens=20_000)
    return lg.bench_tasks(env_id, kwargs=KWARGS.get(env_id), episodes=count, sampling=sampling)


async def by_the_oracle(tasks):
    """The episodes that the oracle plays."""
    made = []
    for task in tasks:
        env = gym.make(task.env_id, **task.kwargs)
        made.append(await lg.run_episode(env, lg.OraclePolicy(env), task))
        env.close()
    return made


class Knower:
    """Plays the oracle's episodes again, one after the other, by what the requests hold.

    The last message must have the observation of the turn, else it is lost. Where the environment
    has tools, it calls one, and replies with the action if the tool's result has it. Actions that
    are calls, and tools, are called natively if the request offers them.
    form: of an action in text.
    """

    def __init__(self, rollouts, form="{}"):
        self.rollouts, self.form = list(rollouts), form
        self.env_id, self.steps, self.has_asked = "", [], False

    def reply(self, messages, tools=()):
        """The text of the next message, or a call as (name, arguments)."""
        offered = {tool["function"]["name"] for tool in tools}
        last = str(messages[-1]["content"])
        if all(message["role"] != "assistant" for message in messages):
            rollout = self.rollouts.pop(0)
            self.env_id, self.steps, self.has_asked = rollout.task.env_id, [*rollout.steps], False
        step = self.steps[0]
        if not self.has_asked and step.observation.strip() not in last:
            return LOST
        action = step.decision.action
        if call := self.needed(action, last):
            self.has_asked = True
            is_shown = f'"name": "{call[0]}"' in str(messages[0]["content"])
            return call if call[0] in offered else tagged(*call) if is_shown else LOST
        if self.has_asked and action not in last:
            return LOST
        del self.steps[0]
        return self.acted(action, offered)

    def needed(self, action, last):
        """The call of a tool without which no model knows the action; None for none."""
        if self.has_asked:
            return None
        if self.env_id == VAULT:
            return "open_vault", {"key": int(re.search(r"Key: (\d+)", last)[1])}
        if self.env_id == "ludic/PythonToolMath-v0":
            return "python", {"code": f"print({action!r})"}
        return None

    def acted(self, action, offered):
        """The action in the form of the model, or as a call of what is offered."""
        try:
            call = json.loads(action)
            if call["name"] in offered:
                return call["name"], call["arguments"]
        except (ValueError, TypeError, KeyError):
            pass
        if "act" in offered:
            return "act", {"action": action}
        if "say" in offered:
            return "say", {"text": action}
        bare = (
            re.sub(r"(?s)^<answer>(.*)</answer>$", r"\1", action) if self.form != "{}" else action
        )
        return self.form.replace("{}", bare)


def tagged(name, arguments):
    """A call in text."""
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


def serving(knower):
    """A chat server of the model, with tool calls."""

    def respond(path, headers, body):
        if body is None:
            return 200, MODELS
        # The probe of a command is no episode.
        if body["messages"] == list(QUESTION):
            return 200, completion("x")
        reply = knower.reply(body["messages"], body.get("tools", ()))
        if isinstance(reply, str):
            return 200, completion(reply)
        function = {"name": reply[0], "arguments": json.dumps(reply[1])}
        made = completion(None)
        made["choices"][0]["finish_reason"] = "tool_calls"
        calls = [{"id": "call_1", "type": "function", "function": function}]
        made["choices"][0]["message"]["tool_calls"] = calls
        return 200, made

    return respond
