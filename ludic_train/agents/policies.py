"""Agent programs as policies: each episode is one run of the program, behind the gateway.

The program gets the first observation as its prompt. It acts by its answer, or by tools that the
environment has: by the Model Context Protocol, by HTTP, or as a function of `AgentTask`. Its model
calls, whatever framework makes them, are those of the policy.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from contextvars import copy_context
from dataclasses import dataclass, field, replace
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import Any, cast

import torch

from ludic_gym.concurrency import Caught, WorkerThread, cancel_all
from ludic_gym.errors import ClientError, ConfigError, EpisodeError, LudicError, SandboxError
from ludic_gym.harness import STRICT
from ludic_gym.parsers import Parser
from ludic_gym.policies.base import FinishingPolicy
from ludic_gym.rollout.episode import run_episode
from ludic_gym.rollout.episodes import task_env
from ludic_gym.tools.mcp_server import EnvCalls, checked_call
from ludic_gym.types import (
    Completion,
    Decision,
    Env,
    MakePolicy,
    Policy,
    Rollout,
    Sampling,
    Task,
    ToolSchema,
)
from ludic_train.agents.gateway import Gateway
from ludic_train.agents.programs import Agent, AgentTask, named_agent, run_program
from ludic_train.agents.session import Session
from ludic_train.engine.client import LocalChatClient, model_folder
from ludic_train.models.cache import model_and_harness
from ludic_train.models.load import load_model

# Seconds in which a program may end by itself after its episode.
GRACE_S = 30.0
# At a time: programs, each of which is a process with its imports, and functions.
RUNNING, FUNCTIONS = 16, 256
OVER = "The episode is over."
ENDED, FAILED, DEADLINE = "agent_ended", "agent_failed", "agent_deadline"


class AgentPolicy(FinishingPolicy):
    """Policy of one episode, whose turns are actions of an agent program.

    Completions of a turn are the model calls since the turn before; those after the last turn
    belong to it too. A program that fails before its first model call fails the episode; one that
    fails later, or runs out of time, truncates it, unless the model's server had failed it. A tool
    whose own server or sandbox fails, fails the episode.
    parser: finds the action in an answer; None: the whole answer.
    deadline_s: seconds of an episode. running: limits the programs that run at a time.
    """

    def __init__(
        self,
        env: Env,
        gateway: Gateway,
        agent: Agent,
        *,
        parser: Parser | None = None,
        deadline_s: float | None = None,
        running: asyncio.Semaphore | None = None,
    ) -> None:
        self._gateway, self._agent, self._parser = gateway, agent, parser
        self._deadline_s = gateway.deadline_s if deadline_s is None else deadline_s
        self._running = running or asyncio.Semaphore(1)
        self._calls = EnvCalls(env)
        self._session: Session | None = None
        self._task: asyncio.Task[str | None] | None = None
        self._actions: asyncio.Queue[tuple[str, asyncio.Future[str]]] = asyncio.Queue()
        self._waiting: asyncio.Future[str] | None = None
        self._system_prompt = self._seen = ""
        self._is_over = self._holds = False
        self._tool_fault: LudicError | None = None
        self._ends_at = 0.0

    def reset(self, system_prompt: str) -> None:
        """Begin an episode."""
        self._system_prompt = system_prompt

    def observe(self, text: str) -> None:
        """Receive the next observation: the prompt, or the result of the last action."""
        self._seen = text

    async def act(self, sampling: Sampling) -> Decision:
        """The next action of the program, once it has acted or ended."""
        if self._task is None:
            session = await self._started(sampling)
        else:
            session = cast(Session, self._session)
            session.begin_turn(sampling)
            # Its answer was the action of an earlier turn: nothing is left that could act.
            if self._waiting is None:
                return Decision(action=None, give_up=ENDED)
            self._answer_waiting(self._seen)
        try:
            async with asyncio.timeout_at(self._ends_at):
                action = await self._next_action()
        except TimeoutError:
            self._raise_fault()
            return Decision(action=None, give_up=DEADLINE, completions=session.taken())
        completions = session.taken()
        if action is not None:
            return Decision(action=action, completions=completions)
        return self._ended(completions)

    async def finish(self, rollout: Rollout) -> Rollout:
        """The rollout with the calls after its last turn; the program gets some time to end."""
        assert self._task is not None
        # Before the result is given: the program may call its next tool at once.
        self._is_over = True
        self._answer_waiting(f"{rollout.final_observation}\n{OVER}".strip())
        grace = asyncio.get_running_loop().time() + GRACE_S
        with suppress(TimeoutError):
            # It may have reports to write; one that hangs must not hold up the run.
            async with asyncio.timeout_at(min(self._ends_at, grace)):
                await asyncio.wait({self._task})
        session = cast(Session, self._session)
        later = session.taken()
        await self.abort()
        if self._tool_fault is not None:
            raise self._tool_fault
        return _with_last(rollout, later)

    async def abort(self) -> None:
        """End the program and the session."""
        if self._task is not None:
            await cancel_all([self._task])
        if self._session is not None:
            self._gateway.close(self._session)
        if self._holds:
            self._running.release()
            self._holds = False

    async def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """The result of a tool, or the observation after an action.

        Raises LudicError when the episode is over, and the errors of `call_tool`.
        """
        if self._is_over:
            raise LudicError(OVER)
        try:
            return await self._calls.call(name, arguments, self._take)
        except (EpisodeError, ClientError, SandboxError) as error:
            self._tool_fault = error
            raise

    @property
    def tools(self) -> Sequence[ToolSchema]:
        """Schemas of what the program may call."""
        return self._calls.tools

    async def _take(self, action: str) -> str:
        result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._actions.put_nowait((action, result))
        return await result

    async def _started(self, sampling: Sampling) -> Session:
        """The session of the program, which is started once there is a place for it."""
        await self._gateway.start()
        await self._running.acquire()
        self._holds = True
        # Counted from here: an episode must not lose the time that it waited for its place.
        self._ends_at = asyncio.get_running_loop().time() + self._deadline_s
        # Longer than the deadline, so that a program in its time of grace is still served.
        session = self._gateway.open(sampling=sampling, deadline_s=self._deadline_s + GRACE_S)
        session.tools = self
        self._session = session
        self._task = asyncio.ensure_future(self._run(self._agent_task(session)))
        return session

    def _agent_task(self, session: Session) -> AgentTask:
        root = self._gateway.root_url(session)

        async def call(name: str, arguments: Mapping[str, Any]) -> str:
            return (await checked_call(self, name, dict(arguments)))[0]

        return AgentTask(
            prompt=self._seen,
            system_prompt=self._system_prompt,
            base_url=self._gateway.base_url(session),
            root_url=root,
            api_key=session.id,
            model=self._gateway.model,
            mcp_url=f"{root}/mcp",
            tools_url=f"{root}/tools",
            tools=self.tools,
            call=call,
        )

    async def _run(self, task: AgentTask) -> str | None:
        """Run the program to its end; its answer, None without one. Raises what it raises."""
        agent = self._agent
        if isinstance(agent, str):
            return await run_program(agent, task)
        if iscoroutinefunction(agent):
            return cast("str | None", await agent(task))
        # Programs of a synchronous SDK block their thread. Not the default executor: `asyncio.run`
        # waits for its threads, one that hangs included.
        call = partial(copy_context().run, agent, task)
        answer = await WorkerThread("ludic-agent").run(call)
        # An object with an async `__call__` does not look like a coroutine function.
        return await answer if isawaitable(answer) else answer

    async def _next_action(self) -> str | None:
        """The action of the next tool call; None if the program ends first."""
        assert self._task is not None
        # A task, since the program may also end without another action.
        arrival = asyncio.ensure_future(self._actions.get())
        try:
            await asyncio.wait({arrival, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if not arrival.done():
                return None
            # An action that came together with the program's end is played first.
            action, self._waiting = arrival.result()
            return action
        finally:
            arrival.cancel()

    def _ended(self, completions: tuple[Completion, ...]) -> Decision:
        """The decision of a program that has ended. Raises EpisodeError if it never began."""
        assert self._task is not None
        with Caught(Exception) as failure:
            answer = self._task.result()
        session = cast(Session, self._session)
        if failure.error is not None and not session.calls:
            # Nothing was sampled, so that there is nothing to learn. A prompt that is too long for
            # the model is its end; else the fault is the program's, or the server's.
            blame = None if session.fault is None else session.fault.blame
            raise EpisodeError(
                f"the agent failed before its first model call: {failure.text}", blame=blame
            ) from failure.error
        if failure.error is not None or answer is None:
            self._raise_fault()
            reason = FAILED if failure.error is not None else ENDED
            return Decision(action=None, give_up=reason, completions=completions)
        if self._tool_fault is not None:
            raise self._tool_fault
        decision = Decision(action=answer, completions=completions)
        if self._parser is None:
            return decision
        read = self._parser(answer)
        return replace(decision, action=read.action, reward=read.reward, feedback=read.feedback)

    def _raise_fault(self) -> None:
        """Raise the error of infrastructure that kept the program from its end, if there is one."""
        # An EpisodeError of a tool has no blame of its own.
        if self._tool_fault is not None:
            raise self._tool_fault
        fault = cast(Session, self._session).fault
        if fault is not None and fault.blame == "infrastructure":
            raise fault

    def _answer_waiting(self, text: str) -> None:
        """Give its observation to the tool call that waits, and the end to all others."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(text)
        while self._is_over and not self._actions.empty():
            _, further = self._actions.get_nowait()
            if not further.done():
                further.set_result(OVER)


@dataclass(frozen=True, slots=True)
class AgentPolicies:
    """A MakePolicy: an `AgentPolicy` per episode, all of them behind one gateway.

        make_policy = AgentPolicies(Gateway(client, tokenizer), "python my_agent.py")

    parser, deadline_s: as of `AgentPolicy`. running: limits the programs that run at a time.
    """

    gateway: Gateway
    agent: Agent
    parser: Parser | None = None
    deadline_s: float | None = None
    running: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(RUNNING))

    @staticmethod
    def named(gateway: Gateway, agent: str, parser: Parser | None = None) -> AgentPolicies:
        """Those of a command or of "module:function". Raises ConfigError as `named_agent`."""
        program = named_agent(agent)
        limit = RUNNING if isinstance(program, str) else FUNCTIONS
        return AgentPolicies(gateway, program, parser, running=asyncio.Semaphore(limit))

    def __call__(self, env: Env) -> Policy:
        """The policy of one episode."""
        return AgentPolicy(
            env,
            self.gateway,
            self.agent,
            parser=self.parser,
            deadline_s=self.deadline_s,
            running=self.running,
        )


async def agent_episode(
    task: Task, agent: Agent, gateway: Gateway, *, parser: Parser | None = None
) -> Rollout:
    """Run an agent program in the environment of a task; a rollout with the tokens of its calls.

        rollout = await agent_episode(Task(env_id="ludic/ToolCalls-v0"), my_agent, gateway)

    agent: a command, which gets the prompt on its standard input and prints its answer; or a
        function of `AgentTask`, async or not, that returns its answer or None.
    gateway: starts to listen, if it does not yet. parser: finds the action in an answer.
    Raises the errors of the environment, and EpisodeError for an agent that fails at once.
    """
    async with task_env(task) as env:
        return await run_episode(env, AgentPolicy(env, gateway, agent, parser=parser), task)


@asynccontextmanager
async def open_agent(name: str, agent: str) -> AsyncIterator[MakePolicy]:
    """A function that builds policies of the program, usable while the context lasts.

    name: a run folder, a model's folder, a name of `ludic model`, or "hf/NAME".
    agent: a command, or "module:function". The parser is the one that the model was trained with.
    Raises ModelNotFound, and ConfigError for a function that does not exist and for a model that
    was trained with parser="strict".
    """
    folder, harness = model_and_harness(model_folder(name))
    if harness.parser == STRICT:
        raise ConfigError(
            f"{name} was trained with parser={STRICT!r}, and an agent acts by calls too, which "
            "that does not read: leave out --agent"
        )
    model, tokenizer = load_model(folder, device="cuda" if torch.cuda.is_available() else "cpu")
    # It only samples: gradients would take memory.
    client = LocalChatClient(model.eval().requires_grad_(False), tokenizer)
    gateway = Gateway(
        client,
        tokenizer,
        model=name,
        max_positions=client.max_positions,
        max_tokens=harness.reply_tokens or 1024,
    )
    policies = AgentPolicies.named(gateway, agent, harness.parse)
    async with gateway.running():
        yield policies


def _with_last(rollout: Rollout, later: tuple[Completion, ...]) -> Rollout:
    """The rollout with further model calls in its last step."""
    if not later or not rollout.steps:
        return rollout
    *steps, last = rollout.steps
    completions = (*last.decision.completions, *later)
    last = replace(last, decision=replace(last.decision, completions=completions))
    return replace(rollout, steps=(*steps, last))
