"""A run whose actors ask a server: trainer and actor here, each with its own params or none."""

import asyncio
import json
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, replace
from pathlib import Path

from ludic_gym.harness import Harness, write_harness
from ludic_train.algorithms.presets import grpo
from ludic_train.cluster.actor import ActorOptions
from ludic_train.cluster.address import read_address
from ludic_train.cluster.queues.open_queue import open_queue
from ludic_train.cluster.run_actor import play_remotely
from ludic_train.loggers.loggers import JSONLLogger
from ludic_train.models.load import save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.recipes.catalog import TIC_TAC_TOE
from ludic_train.runs.config import IN_PYTHON
from ludic_train.runs.learner import Learner, learner_from_model
from ludic_train.runs.machine import Machine
from ludic_train.runs.run import Run, Stage, run_stages
from ludic_train.runs.settled import settled
from ludic_train.runs.stages import reward_stage
from ludic_train.runs.tasks import training_tasks

OPTIONS = ActorOptions(concurrency=8, grace_s=1.0)
# Every first move of a model that knows nothing is illegal, and equal rewards teach nothing.
ALGO = grpo(filter=None)


@dataclass
class ServedRun:
    """A run in the folder `out`, its only stage, and its actor."""

    out: Path
    learner: Learner
    stage: Stage
    actor: asyncio.Task

    async def train(self, updates):
        """Go on until that many updates are made."""
        logger = JSONLLogger(self.out / "metrics.jsonl")
        run = Run(
            out=self.out,
            learner=self.learner,
            stages=(replace(self.stage, updates=updates),),
            evaluate=nothing,
            eval_every=1000,
            logger=logger,
        )
        with closing(logger):
            await run_stages(run, resume=False)

    def batches(self):
        """Logged metrics of each batch."""
        lines = (self.out / "metrics.jsonl").read_text().splitlines()
        return [line for line in map(json.loads, lines) if "lag/max" in line]

    async def status(self):
        """The queue's."""
        address = read_address(self.out)
        queue = open_queue(address.url, address.key)
        status = await queue.status()
        await queue.aclose()
        return status


async def nothing(update):
    return {}


def start_model():
    """A model that knows nothing, and its tokenizer; the same ones every time."""
    tokenizer = make_tokenizer(["A1 B2 C3"])
    shape = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1}
    return make_tiny_model(tokenizer, seed=0, **shape), tokenizer


@asynccontextmanager
async def served_run(
    out, url, *, queue=None, asked=(), lora_rank=0, top_p=1.0, minibatches=2, **changes
):
    """A run of batches of two groups, `minibatches` updates each, whose server is at `url`.

    queue: URL of a Redis; a file without it.
    changes: parts of its algorithm. top_p: of sampling.
    asked: the addresses that the actor is told to ask; () leaves it to the run's folder.
    """
    save_model(*start_model(), out / "start" / "model")
    write_harness(out / "start", Harness(context="latest", system_prompt=""))
    learner = learner_from_model(str(out / "start"), max_tokens=2, lora_rank=lora_rank, seed=0)
    small = {"groups": 2, "group_size": 2, "minibatches": minibatches}
    config = TIC_TAC_TOE.defaults.changed(out=out, top_p=top_p, **small)
    machine = Machine(queue=queue or f"file://{out}/queue.sqlite3", engine=(url,))
    given = config.changed(algo=IN_PYTHON)
    algo, config = settled(replace(ALGO, **changes), given, machine)
    stage = reward_stage(TIC_TAC_TOE, config, learner, machine, algo=algo)
    stop, tasks = asyncio.Event(), training_tasks(TIC_TAC_TOE, config, 5)
    actor = asyncio.create_task(
        play_remotely(out, tasks, servers=asked, name="one", options=OPTIONS, stop=stop)
    )
    try:
        yield ServedRun(out, learner, stage, actor)
        stop.set()
        if not actor.done():
            async with asyncio.timeout(60):
                await actor
    finally:
        actor.cancel()
        await stage.trainer.publisher.aclose()
        await stage.trainer.batch_source.aclose()
