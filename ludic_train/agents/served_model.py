"""A model of this process as a server: its versions, and vLLM's routes for trainers and actors.

    POST /inference/v1/generate    token ids in; token ids, log-probs and versions out
    GET  /weight_info, /is_paused, /server_info, /metrics
    POST /start_weight_update, /update_weights, /pause, /finish_weight_update, /resume: the order of
         a publication, of which the second one names a folder of params
    POST /collective_rpc

Paths, fields and statuses are vLLM's, so that clients and publishers need not tell the two apart.
All POST routes but the first need the server's token.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from aiohttp import web

from ludic_gym.errors import ConfigError
from ludic_gym.sampling import unpacked_masks
from ludic_gym.types import Completion
from ludic_train.agents.dialects.fields import SamplingBody, body_of, fields_of
from ludic_train.agents.gateway import GATEWAY, Gateway, bearer_of, json_response, with_token
from ludic_train.agents.params import StagedParams, Update
from ludic_train.agents.types import Json
from ludic_train.engine.client import LocalChatClient
from ludic_train.errors import ModelNotFound
from ludic_train.models.exact import param_checksums
from ludic_train.server_tokens import KEY_VARIABLE
from ludic_vllm import BACKEND

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

# vLLM's version name of the initial params, and its default limit of a completion.
UNNAMED, MAX_TOKENS = "default", 16


class _Generate(msgspec.Struct, kw_only=True):
    """Request of the generate route. token_ids: the prompt. model: None takes the served one."""

    token_ids: list[int]
    sampling_params: Json = {}
    model: str | None = None
    request_id: str | None = None


class _Update(msgspec.Struct, kw_only=True):
    update_info: Update


class _Finish(msgspec.Struct, kw_only=True):
    """weight_version: name of the new params; None keeps the name."""

    weight_version: str | None = None


class _Call(msgspec.Struct, kw_only=True):
    method: str


class ServedModel:
    """A model whose params change between two tokens of what is sampled.

        served = ServedModel("m", model, tokenizer)
        async with served.gateway().running() as gateway: ...

    name: in requests. client: samples in batches; `client_options` are its arguments.
    """

    def __init__(
        self,
        name: str,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        **client_options: Any,  # noqa: ANN401 - of LocalChatClient
    ) -> None:
        self.name, self.model, self.tokenizer = name, model, tokenizer
        self.client = LocalChatClient(model, tokenizer, **client_options)
        self.paused = False
        # Beside the model, so sampling continues while params arrive.
        self._staged = StagedParams(model)
        # By the client's number of each version.
        self._versions = {0: UNNAMED}
        self._requests = self._prompt_tokens = 0

    @property
    def version(self) -> str:
        """Name of the params as they are now."""
        return self._versions[self.client.policy_version]

    def gateway(self, **options: Any) -> Gateway:  # noqa: ANN401 - of Gateway
        """A gateway to the model, with the routes of a server. options: of `Gateway`."""
        return Gateway(
            self.client,
            self.tokenizer,
            model=self.name,
            max_positions=self.client.max_positions,
            is_open=True,
            routes=self.add_routes,
            **options,
        )

    def add_routes(self, app: web.Application) -> None:
        """Add vLLM's routes to a gateway's own."""
        app.router.add_post("/inference/v1/generate", self._generate)
        app.router.add_get("/weight_info", self._weight_info)
        app.router.add_get("/is_paused", self._is_paused)
        app.router.add_get("/server_info", self._server_info)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_post("/start_weight_update", with_token(self._start))
        app.router.add_post("/update_weights", with_token(self._update))
        app.router.add_post("/finish_weight_update", with_token(self._finish))
        app.router.add_post("/pause", with_token(self._pause))
        app.router.add_post("/resume", with_token(self._resume))
        app.router.add_post("/collective_rpc", with_token(self._call))
        app.router.add_post("/v1/load_lora_adapter", with_token(self._load_adapter))

    async def _generate(self, request: web.Request) -> web.Response:
        """The continuation of token ids.

        Raises ModelNotFound for another model's name, PromptTooLong, ConfigError.
        """
        if os.environ.get(KEY_VARIABLE):
            request.app[GATEWAY].require_token(bearer_of(request))
        body = body_of(await request.read(), _Generate)
        if body.model not in (None, self.name):
            raise ModelNotFound(f"The model `{body.model}` does not exist; here is `{self.name}`.")
        params = fields_of(body.sampling_params, SamplingBody)
        sampling = replace(params.sampling(), max_tokens=params.max_tokens or MAX_TOKENS)
        completion = await self.client.continued(body.token_ids, sampling)
        prompt, sampled = len(body.token_ids), len(completion.completion_ids or ())
        self._requests += 1
        self._prompt_tokens += prompt
        return json_response(
            {
                "request_id": body.request_id,
                "model": self.name,
                "choices": [self._choice(completion)],
                "usage": {
                    "prompt_tokens": prompt,
                    "completion_tokens": sampled,
                    "total_tokens": prompt + sampled,
                },
            }
        )

    def _choice(self, completion: Completion) -> Json:
        """A completion in the format of the generate route."""
        ids, logprobs = completion.completion_ids or (), completion.logprobs or ()
        number = completion.policy_version
        versions: Sequence[int | None] = completion.versions or [number] * len(ids)
        spans = []
        for version, group in groupby(enumerate(versions), key=itemgetter(1)):
            indices = [index for index, _ in group]
            name = self._versions[version or 0]
            spans.append({"version": name, "start": indices[0], "end": indices[-1] + 1})
        content = [{"token_id": i, "logprob": p} for i, p in zip(ids, logprobs, strict=True)]
        return {
            "index": 0,
            "text": completion.text,
            "token_ids": list(ids),
            "finish_reason": completion.finish_reason,
            "logprobs": {"content": content},
            "sampling_mask": _mask_lists(completion),
            "routed_experts": completion.routed_experts,
            "weight_versions": spans,
        }

    async def _weight_info(self, request: web.Request) -> web.Response:
        return json_response({"weight_version": self.version})

    async def _is_paused(self, request: web.Request) -> web.Response:
        return json_response({"is_paused": self.paused})

    async def _server_info(self, request: web.Request) -> web.Response:
        """The part of vLLM's config that concerns sampling, which `ludic doctor` checks."""
        # All params have the dtype and the device of the first one.
        weight = next(self.model.parameters())
        config = {
            "model_config": {
                "model": self.name,
                "dtype": str(weight.dtype),
                "max_model_len": self.client.max_positions,
                "logprobs_mode": "processed_logprobs",
                "generation_config": "vllm",
            },
            "weight_transfer_config": {"backend": BACKEND},
            "device_config": {"device": weight.device.type},
        }
        return json_response({"engine": "local", "vllm_config": config})

    async def _metrics(self, request: web.Request) -> web.Response:
        """Counts since the start and current load, in Prometheus' format, by vLLM's names."""
        load = self.client.in_flight
        looked_up, cached = self.client.prefix_tokens
        numbers = {
            "num_requests_running": 0 if self.paused else load,
            "num_requests_waiting": load if self.paused else 0,
            # The cache grows with the batch, so the batch is the resource that can be full.
            "kv_cache_usage_perc": min(1.0, load / self.client.max_batch_size),
            "prompt_tokens_total": self._prompt_tokens,
            "prefix_cache_queries_total": looked_up,
            "prefix_cache_hits_total": cached,
            "generation_tokens_total": self.client.num_sampled,
            "request_success_total": self._requests,
        }
        # Prometheus' escapes of a label; a folder's name can hold any of these characters.
        label = self.name.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
        lines = []
        for name, value in numbers.items():
            kind = "counter" if name.endswith("_total") else "gauge"
            lines += [f"# TYPE vllm:{name} {kind}", f'vllm:{name}{{model_name="{label}"}} {value}']
        return web.Response(text="\n".join([*lines, ""]))

    async def _pause(self, request: web.Request) -> web.Response:
        """Hold all requests where they are; returns when no token is sampled any more.

        Raises ConfigError for vLLM's modes "abort" and "wait".
        """
        if (mode := request.query.get("mode")) != "keep":
            raise ConfigError(f"mode={mode!r}: the local engine keeps its requests, mode=keep")
        self.paused = True
        await self.client.hold()
        return json_response({"status": "paused"})

    async def _resume(self, request: web.Request) -> web.Response:
        self.paused = False
        self.client.resume()
        return json_response({"status": "resumed"})

    async def _start(self, request: web.Request) -> web.Response:
        self._staged.start()
        return json_response({"message": "Weight update started"})

    async def _update(self, request: web.Request) -> web.Response:
        await self._staged.receive(body_of(await request.read(), _Update).update_info)
        return json_response({"message": "Weights updated"})

    async def _finish(self, request: web.Request) -> web.Response:
        """Put the params into the model.

        Requests in flight continue with the new params, and name the versions of their tokens.
        """
        body = body_of(await request.read() or b"{}", _Finish)
        params, number = self._staged.complete(), 1 + max(self._versions)
        name = body.weight_version
        self._versions[number] = self.version if name is None else name
        await self.client.change_params(partial(self._staged.put_in, params), number)
        return json_response({"message": "Weight update finished"})

    async def _call(self, request: web.Request) -> web.Response:
        """Result of the method that `ludic doctor` calls, of the one worker."""
        body = body_of(await request.read(), _Call)
        if body.method != "ludic_checksums":
            raise ConfigError(f"the local engine has no method {body.method!r}")
        # Type and CRC-32 of each param.
        results = await self.client.between_tokens(lambda: param_checksums(self.model))
        return json_response({"results": [results]})

    async def _load_adapter(self, request: web.Request) -> web.Response:
        raise ConfigError(
            "the local engine takes no adapters: publish them merged, by FilesPublisher(model=)"
        )


def _mask_lists(completion: Completion) -> list[list[int]] | None:
    """The ids that each token was drawn from; None where none was left out."""
    if completion.sampling_mask is None:
        return None
    sizes, ids = unpacked_masks(completion.sampling_mask, np.array(completion.completion_ids))
    return [sorted(part.tolist()) for part in np.split(ids, sizes.cumsum()[:-1])]
