"""A fake server that computes what it samples, with a tiny model; and may do so wrongly."""

import torch
from aiohttp import web
from fake_vllm.fleet import FakeVLLM

from ludic_train.models.chat_template import render_chat

MAX_LENGTH = 200


def nucleus(logits, top_p, top_k):
    """The logits [V], -inf outside the `top_k` greatest and the smallest set of `top_p`."""
    ranked, order = logits.sort(descending=True)
    outside = ranked.softmax(-1).cumsum(-1) - ranked.softmax(-1) >= top_p
    outside[top_k or len(logits) :] = True
    return logits.masked_fill(
        torch.zeros_like(order, dtype=bool).scatter(-1, order, outside), -torch.inf
    )


class SamplingVLLM(FakeVLLM):
    """Samples one token after the other from its params.

    masks: returns sampling masks, and takes no request without a top_k or at temperature 0.
    raw: gives log-probs before temperature and top_p. deaf: takes params and goes on with the old.
    config: what /server_info tells; None for a server that does not.
    """

    def __init__(self, model, tokenizer):
        super().__init__({n: p.detach() for n, p in model.named_parameters()})
        self.model, self.tokenizer = model, tokenizer
        self.raw = self.deaf = self.masks = False
        self.template = ""
        self.config = {
            "model_config": {
                "logprobs_mode": "processed_logprobs",
                "generation_config": "vllm",
                "dtype": "torch.float32",
                "max_model_len": MAX_LENGTH,
            },
            "weight_transfer_config": {"backend": "ludic"},
        }

    async def _get(self, request):
        if request.path == "/v1/models":
            return web.json_response({"data": [{"id": "m"}]})
        if request.path == "/server_info":
            if self.config is None:
                return web.Response(status=404)
            return web.json_response({"vllm_config": self.config})
        return await super()._get(request)

    async def _finish_weight_update(self, body):
        before = self.params
        await super()._finish_weight_update(body)
        if self.deaf:
            self.params = before

    async def _inference_v1_generate(self, body):
        ids, logprobs, masks = self._sampled(body["token_ids"], body["sampling_params"])
        choice = {
            "text": self.tokenizer.decode(ids, skip_special_tokens=True),
            "finish_reason": "length",
            "token_ids": ids,
            "logprobs": {"content": [{"logprob": value} for value in logprobs]},
            "sampling_mask": masks if self.masks else None,
            "weight_versions": [{"version": self.version, "start": 0, "end": len(ids)}],
        }
        return {"choices": [choice]}

    async def _v1_chat_completions(self, body):
        prompt = render_chat(self.tokenizer, body["messages"])
        prompt += self.tokenizer.encode(self.template, add_special_tokens=False)
        ids, logprobs, _ = self._sampled(prompt, body)
        text = self.tokenizer.decode(ids, skip_special_tokens=True)
        choice = {
            "message": {"role": "assistant", "content": text},
            "finish_reason": "length",
            "token_ids": ids,
            "logprobs": {"content": [{"logprob": value} for value in logprobs]},
        }
        return {"prompt_token_ids": prompt, "choices": [choice]}

    @torch.no_grad()
    def _logits(self, ids):
        made = torch.func.functional_call(self.model, self.params, (torch.tensor([ids]),))
        return made.logits[0, -1]

    def _sampled(self, prompt, params):
        if len(prompt) + params["max_tokens"] > MAX_LENGTH:
            raise ValueError(f"longer than the maximum model length of {MAX_LENGTH}")
        if self.masks and not (params["temperature"] > 0 and params["top_k"] > 0):
            raise ValueError("sampling distribution replay requires temperature > 0 and top_k > 0")
        generator = torch.Generator()
        generator.manual_seed(params["seed"]) if "seed" in params else generator.seed()
        ids, logprobs, masks = [], [], []
        for _ in range(params["max_tokens"]):
            plain = self._logits([*prompt, *ids])
            heat = params["temperature"]
            top_p, top_k = params.get("top_p", 1.0), params.get("top_k", 0)
            logits = nucleus(plain / heat, top_p, top_k) if heat else plain
            masks.append(logits.isfinite().nonzero()[:, 0].tolist())
            chances = logits.softmax(-1)
            drawn = torch.multinomial(chances, 1, generator=generator)
            token = int(drawn if heat else plain.argmax())
            ids.append(token)
            known = (plain if self.raw else logits).log_softmax(-1)
            logprobs.append(float(known[token]))
        return ids, logprobs, masks
