"""Local engine as a chat client: requests of all coroutines are sampled in one batch."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch

from ludic_gym.errors import ConfigError
from ludic_gym.harness import Harness
from ludic_gym.prompts import ExactPrompts, Render
from ludic_gym.sampling import check_sampling, fit_max_tokens
from ludic_gym.trail import Trail, token_ids
from ludic_gym.types import Completion, MakePolicy, Message, Sampling, ToolSchema
from ludic_train.engine.batch import Ended, Engine, Request
from ludic_train.errors import EngineError
from ludic_train.models.cache import hub_folder, model_and_harness, resolved
from ludic_train.models.chat_template import ChatRenderer, chat_renderer, set_chat_args
from ludic_train.models.load import load_model

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# Turns of the event loop without a new request after which no more are expected. A coroutine that
# got its completion needs a few to hand it on, through gathers and queues, until the next request.
QUIET_TURNS = 8
HUB_PREFIX = "hf/"
PREFIX_CACHE_BYTES = 2**29
# Tokenising can take longer than sampling; in a game, the same short dialogs come again.
REMEMBERED_DIALOGS, REMEMBERED_LENGTH = 8192, 512

T = TypeVar("T")
_Answer = asyncio.Future[Completion]


class LocalChatClient:
    """A `ChatClient` over the live params of a model in this process.

    Requests of all coroutines are batched while they run, at most `max_batch_size` at a time; the
    rest wait. The forward passes run in one worker thread, so the event loop stays responsive. The
    next request is sampled from the params as they are then; setting `policy_version` after that is
    all that publishing takes. Change params while no request is in flight, or by `change_params`.

    Keys and values of texts stay in memory while the params are the same, and a prompt that begins
    with 64 tokens or more of an earlier prompt and completion is read from there on.

    A request without a seed gets one from the client's own generator, which starts at `seed`; the
    completion's `sampling` holds it. Equal requests made in equal order to a new client, or after
    `forget_prefixes`, give equal completions, bit for bit, and a request with a seed gives the same
    text in any batch, up to the rounding that `sampling.choose` explains.

    max_positions: longest prompt and completion together, in tokens.
    routed_experts: completions of a mixture hold the experts of their tokens, for router replay;
        prefixes are not kept then, because the experts of a cached token are not known.
        Nor are they for models that are sampled from by their own forward pass.
    prefix_cache_bytes: memory of these keys and values; the least recently used are dropped. 0
        keeps none.
    prompts: makes a prompt continue the very tokens that earlier replies were sampled as, so that
        the turns of a dialog become one training row; it counts those that could not.
    Raises UnsupportedModel for a model that is none of transformers, and for `routed_experts` where
    the model's own forward pass is sampled from.

    >>> from ludic_train import make_tiny_model, make_tokenizer
    >>> tokenizer = make_tokenizer(["2 + 3 = 5"])
    >>> client = LocalChatClient(make_tiny_model(tokenizer), tokenizer)
    >>> question, short = [{"role": "user", "content": "2 + 3 = ?"}], Sampling(max_tokens=4)
    >>> completion = asyncio.run(client.complete(question, short))
    >>> len(completion.completion_ids) == len(completion.logprobs) <= 4
    True
    """

    def __init__(
        self,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        max_batch_size: int = 256,
        policy_version: int = 0,
        seed: int = 0,
        routed_experts: bool = False,
        prefix_cache_bytes: int = PREFIX_CACHE_BYTES,
    ) -> None:
        if max_batch_size < 1:
            raise ConfigError(f"max_batch_size={max_batch_size} must be at least 1")
        if prefix_cache_bytes < 0:
            raise ConfigError(
                f"prefix_cache_bytes={prefix_cache_bytes} must be at least 0, which keeps no prefix"
            )
        self.policy_version = policy_version
        self._renderer = chat_renderer(tokenizer)
        self.prompts = ExactPrompts(_remembering_render(self._renderer))
        self.max_batch_size = max_batch_size
        self._engine = Engine(
            model,
            tokenizer,
            max_batch_size=max_batch_size,
            routed_experts=routed_experts,
            prefix_cache_bytes=prefix_cache_bytes,
        )
        self.max_positions = self._engine.max_positions
        self._seeds = random.Random(seed)
        # One thread: the engine is not thread-safe, and torch uses all cores for one product.
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sampler")
        # Requests wait here until the worker thread is between two tokens.
        self._inbox: list[tuple[Request, _Answer]] = []
        self._answers: dict[Request, _Answer] = {}
        self._task: asyncio.Task[None] | None = None
        # Makes the worker thread return at the next token: a request was cancelled or dropped.
        self._interrupted = False
        # While it exists, requests in flight get no further token.
        self._held: asyncio.Future[None] | None = None

    @property
    def cached_keys(self) -> torch.Tensor:
        """Keys of the tokens in flight; their type and device are those that it samples in."""
        return self._engine.cached_keys

    @property
    def has_native_tools(self) -> bool:
        """True if the model's chat template has a format for tool calls that is known here."""
        return self._renderer.has_tools

    async def complete(
        self, messages: Sequence[Message], sampling: Sampling, tools: Sequence[ToolSchema] = ()
    ) -> Completion:
        """Sample the next message of a dialog, or the rest of the assistant message that ends it.

        A completion ends where prompt and completion fill the model's positions or `max_length`.
        Raises ConfigError for a sampling that makes no sense, and for tools where the chat template
        writes none; PromptTooLong for a dialog that leaves no room for a completion, EngineError if
        the model cannot be sampled from.
        """
        completion = await self.continued(self.prompts.token_ids(messages, tools), sampling)
        return self._renderer.read_calls(completion, tools) if tools else completion

    async def continued(self, prompt_ids: Sequence[int], sampling: Sampling) -> Completion:
        """Sample the tokens after these; raises as `complete` does, and ConfigError for no tokens.

        Cancelled, it makes room for others at the next token.
        """
        prompt = token_ids(prompt_ids)
        request = self._request(prompt, sampling)
        answer: _Answer = asyncio.get_running_loop().create_future()
        self._start()
        self._inbox.append((request, answer))
        try:
            # The prompt of a dialog is in memory already, as a part of the next one.
            return replace(await answer, prompt_ids=prompt)
        except asyncio.CancelledError:
            self._interrupted = True
            raise

    @property
    def in_flight(self) -> int:
        """Requests that wait for their completion."""
        return len(self._inbox) + len(self._answers)

    @property
    def num_sampled(self) -> int:
        """Tokens sampled so far, those of requests in flight or cancelled included."""
        return self._engine.num_sampled

    @property
    def prefix_tokens(self) -> tuple[int, int]:
        """Tokens of prompts that were looked up among cached prefixes so far, and those found."""
        return self._engine.prefixes.num_queried, self._engine.prefixes.num_found

    async def change_params(self, change: Callable[[], None], version: int) -> None:
        """Change the params between two tokens of what is in flight, which continues with them.

        change: called in the thread of the engine. version: the new `policy_version`, greater than
        the one before. Completions that have tokens of several versions hold all of them.
        """

        def work() -> None:
            change()
            self._engine.renew(version)
            self.policy_version = version

        await self.between_tokens(work)

    async def between_tokens(self, work: Callable[[], T]) -> T:
        """Result of the work in the thread of the engine, where params do not change meanwhile."""
        self._interrupted = True
        return await self._in_thread(work)

    async def hold(self) -> None:
        """Sample no further token until `resume`; returns when the one in work is done."""
        if self._held is None:
            self._held = asyncio.get_running_loop().create_future()
        await self.between_tokens(lambda: None)

    def resume(self) -> None:
        """Continue what is held."""
        if self._held is not None:
            self._held.set_result(None)
            self._held = None

    async def forget_prefixes(self) -> None:
        """Drop all cached prefixes, between two tokens of what is in flight."""
        await self.between_tokens(self._engine.prefixes.clear)

    async def wait_until_idle(self) -> None:
        """Return when nothing is in flight and the worker thread rests: params may change now.

        The steps of cancelled requests have ended by then, too.
        """
        while self._task is not None and not self._task.done():
            await asyncio.wait({self._task})
        await self._in_thread(lambda: None)

    def _in_thread(self, work: Callable[[], T]) -> asyncio.Future[T]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)

    def _request(self, prompt: Trail[int], sampling: Sampling) -> Request:
        """A checked request with a seed, for the params as they are now. Raises ConfigError."""
        check_sampling(sampling)
        if not prompt:
            raise ConfigError("a prompt of no tokens cannot be continued")
        ids = np.asarray(prompt.items)
        if (wrong := ids[(ids < 0) | (ids >= self._engine.vocab_size)]).size:
            raise ConfigError(
                f"token {wrong[0]} is none of the model's {self._engine.vocab_size}; is the prompt "
                "made with another tokenizer?"
            )
        sampling = fit_max_tokens(sampling, len(prompt), self.max_positions)
        if sampling.seed is None:
            sampling = replace(sampling, seed=self._seeds.getrandbits(63))
        return Request(
            prompt_ids=tuple(ids.tolist()), sampling=sampling, policy_version=self.policy_version
        )

    def _start(self) -> None:
        loop, task = asyncio.get_running_loop(), self._task
        if task and not task.done():
            if task.get_loop() is loop:
                return
            if not task.get_loop().is_closed():
                raise EngineError("this client is serving another event loop: use one client each")
            # A loop that was closed without cancelling its tasks left requests behind.
            self._forget()
        self._task = loop.create_task(self._serve())

    async def _serve(self) -> None:
        try:
            while self._inbox or self._answers:
                await self._quiet()
                while self._held is not None:
                    await asyncio.wait({self._held})
                gone = {request for request, answer in self._answers.items() if answer.done()}
                arrived = {request: answer for request, answer in self._inbox if not answer.done()}
                self._inbox.clear()
                self._interrupted = False
                self._answers = {r: a for r, a in self._answers.items() if r not in gone} | arrived
                advance = partial(self._advance, list(arrived), gone)
                # The model may raise anything; gather carries it here as a result.
                (ended,) = await asyncio.gather(self._in_thread(advance), return_exceptions=True)
                if isinstance(ended, BaseException):
                    return self._abandon(ended)
                for request, completion in ended:
                    answer = self._answers.pop(request)
                    # Cancelled since, perhaps.
                    if not answer.done():
                        answer.set_result(completion)
        except asyncio.CancelledError:
            self._abandon(None)
            raise

    async def _quiet(self) -> None:
        """Let the event loop turn until no further request arrives.

        A batch that starts with the first request would decode it alone, and the others after it.
        """
        turns = 0
        while turns < QUIET_TURNS:
            waiting = len(self._inbox)
            await asyncio.sleep(0)
            turns = turns + 1 if len(self._inbox) == waiting else 0

    def _advance(self, arrived: list[Request], gone: set[Request]) -> list[Ended]:
        """Advance the engine; in the worker thread, which alone may use it."""
        if gone:
            self._engine.cancel(gone)
        for request in arrived:
            self._engine.add(request)
        # New requests join at the next token and not when some completion ends.
        return self._engine.advance(lambda: bool(self._inbox) or self._interrupted)

    def _abandon(self, error: BaseException | None) -> None:
        """Drop all requests, with the error; cancel them if there is none."""
        for answer in self._forget():
            if error is None:
                answer.cancel()
            elif not answer.done():
                # One per request: a shared one would collect the tracebacks of all of them.
                failure = EngineError(f"sampling failed: {error}")
                failure.__cause__ = error
                answer.set_exception(failure)

    def _forget(self) -> list[_Answer]:
        """Drop all requests, here and in the engine; the futures of their callers."""
        self._interrupted = True
        self._thread.submit(self._engine.reset)
        answers = [*self._answers.values(), *(answer for _, answer in self._inbox)]
        self._answers.clear()
        self._inbox.clear()
        return answers


def _remembering_render(render_anew: ChatRenderer) -> Render:

    def render(
        messages: Sequence[Message], reply_comes: bool, tools: Sequence[ToolSchema] = ()
    ) -> Sequence[int]:
        dialog = json.dumps(messages)
        if tools or len(dialog) > REMEMBERED_LENGTH:
            return render_anew(messages, reply_comes, tools)
        return remembered(dialog, reply_comes)

    @lru_cache(maxsize=REMEMBERED_DIALOGS)
    def remembered(dialog: str, reply_comes: bool) -> Sequence[int]:
        return tuple(render_anew(json.loads(dialog), reply_comes))

    return render


def policy_from_run(
    path: str | Path,
    *,
    chat_args: Mapping[str, Any] | None = None,
    harness: Harness | None = None,
) -> MakePolicy:
    """The policy of a run folder, or of any folder with a model in Hugging Face format.

    A run folder holds model/ and harness.json; a model alone sees the full dialog under the env's
    system prompt. All policies made share one sampler, on the GPU if there is one.
    path: "hf/NAME" is a folder too, or else a model in the cache of the Hugging Face hub.
    chat_args, harness: in place of those of the run; parts that the harness leaves out stay.
    Raises ModelNotFound for a folder that is neither, and for a model that is not in the cache.
    """
    folder, saved = model_and_harness(model_folder(path))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model, tokenizer = load_model(folder, device=device)
    set_chat_args(tokenizer, chat_args or {})
    return (harness or Harness()).over(saved).make_policy(LocalChatClient(model, tokenizer))


def model_folder(name: str | Path) -> Path:
    """Folder of a model or of a run."""
    if str(name).startswith(HUB_PREFIX) and not Path(name).exists():
        name = str(name).removeprefix(HUB_PREFIX)
        if not Path(name).exists():
            return hub_folder(name)
    return Path(resolved(name))
