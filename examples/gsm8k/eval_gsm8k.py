"""Accuracy of a model on GSM8K, with its interval and every transcript.

    python examples/gsm8k/eval_gsm8k.py --model http://localhost:8000/v1 --split test --out results
    python examples/gsm8k/eval_gsm8k.py --offline

`ludic bench ludic/GSM8K-v0 --policy URL` does the same without the prompt and the parser below.
"""

from __future__ import annotations

import argparse
import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import ludic_gym as lg

PROMPT = "Think step by step, then give just the number inside <answer></answer>."


async def measured(args: argparse.Namespace) -> lg.BenchResult:
    """The model's result on the split."""
    tasks = lg.bench_tasks(
        "ludic/GSM8K-v0",
        kwargs={} if args.split is None else {"split": args.split},
        episodes=args.episodes,
        sampling=lg.Sampling(temperature=args.temperature, max_tokens=args.max_tokens),
    )
    async with AsyncExitStack() as stack:
        client: lg.ChatClient = lg.ScriptedClient(lambda messages, sampling: "<answer>7</answer>")
        if not args.offline:
            client = await stack.enter_async_context(lg.OpenAIChatClient(args.model))

        def make_policy(env: lg.Env) -> lg.Policy:
            chat = lg.ChatPolicy(client, system_prompt=PROMPT)
            return lg.Parsed(chat, lg.xml_tag_parser("answer"))

        keep = None
        if args.out is not None:
            path = args.out / "gsm8k.jsonl"
            keep = stack.enter_context(lg.open_transcripts(path, policy=args.model))
        return await lg.run_bench(tasks, make_policy, on_episode=keep)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="http://localhost:8000/v1", help="a server's address")
    parser.add_argument("--offline", action="store_true", help="always answer 7")
    parser.add_argument("--split", help="train or test; left out, the bundled sample")
    parser.add_argument("--episodes", type=int, help="rows to play; left out, all")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--max-tokens", type=int, default=512)
    parser.add_argument("--out", type=Path, help="folder for the transcripts")
    result = asyncio.run(measured(parser.parse_args()))
    low, high = result.success_interval
    print(f"solved {result.successes} of {result.episodes}: {result.success_rate:.1%}", end=" ")
    print(f"[{low:.1%}, {high:.1%}], {len(result.errors)} failed")
