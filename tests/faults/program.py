"""A trainer or an actor, as JSON says: {"role": ..., ...arguments}.

It leaves its stacks on its standard error if SIGABRT ends it.
"""

import asyncio
import faulthandler
import hashlib
import json
import os
import signal
import sys
import traceback
from itertools import count, islice
from pathlib import Path

import ludic_gym  # noqa: F401 - registers the environments
from ludic_gym.clients.scripted import ScriptedClient
from ludic_gym.contexts import LatestObservation
from ludic_gym.policies.chat import ChatPolicy
from ludic_gym.types import Sampling, Task
from ludic_train.algorithms.presets import reinforce
from ludic_train.checkpoints.manager import CheckpointManager
from ludic_train.checkpoints.training_state import resume_training, save_training
from ludic_train.cluster.actor import ActorOptions, run_pipeline_actor
from ludic_train.cluster.publish.folder import FolderPublisher
from ludic_train.cluster.queues import redis_queue
from ludic_train.cluster.queues.open_queue import open_queue
from ludic_train.cluster.source import PipelineBatchSource
from ludic_train.errors import Superseded
from ludic_train.models.load import save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.processes import SUPERSEDED
from ludic_train.sources.publisher import newest
from ludic_train.trainer.config import Guards, TrainerConfig
from ludic_train.trainer.trainer import Trainer

SHAPE = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1}


class Dying:
    """A source that kills or stops its process at one point, and notes the groups of each batch."""

    def __init__(self, source, point):
        stopped = point.removeprefix("stop:")
        self.signum = signal.SIGKILL if stopped == point else signal.SIGSTOP
        self.source, self.point, self.batches, self.names = source, stopped, 0, []

    def pass_by(self, point):
        if point == self.point:
            os.kill(os.getpid(), self.signum)

    def claim(self):
        self.source.claim()

    async def begin(self, pace):
        await self.source.begin(pace)

    async def next_batch(self, algo):
        batch = await self.source.next_batch(algo)
        self.batches += 1
        self.names = [item.group for item in batch.items]
        self.pass_by(f"read:{self.batches}")
        return batch

    async def trained(self, version):
        await self.source.trained(version)
        self.pass_by(f"acked:{version}")

    def state_dict(self):
        return self.source.state_dict()

    def load_state_dict(self, state):
        self.source.load_state_dict(state)


async def trainer(folder, url, key, updates, save_every=2, point="", batch=2, max_lag=None):
    """Train, save, and write what was trained on and what came of it to the folder."""
    folder = Path(folder)
    cfg = TrainerConfig(lr=1e-2, guards=Guards(max_kl_at_lag_0=None))
    source = PipelineBatchSource(open_queue(url, key), groups_per_batch=batch, group_size=2)
    dying = Dying(source, point)
    tokenizer = make_tokenizer(["a b c"])
    model = make_tiny_model(tokenizer, seed=0, **SHAPE)
    publisher = FolderPublisher(folder / "published")
    learner = Trainer(model, reinforce(max_lag=max_lag), dying, publisher, cfg)
    manager = CheckpointManager(folder / "checkpoints")
    resume_training(manager, learner)

    def note(version, metrics):
        lag, lost = metrics["lag/max"].value, metrics["groups/lost"].value
        line = {"version": version, "rows": dying.names, "lag": lag, "lost": lost}
        with (folder / "trained.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")

    while learner.version < updates:
        await learner.train(1, note)
        if learner.version % save_every == 0:
            save_training(manager, learner, lambda path, _: save_model(model, tokenizer, path))
            dying.pass_by(f"saved:{learner.version}")
    digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
    (folder / "digest").write_text(digest.hexdigest())
    await source.aclose()


class Slow(ScriptedClient):
    """Answers with a number that the seed decides, after a while."""

    delay_s = 0.0

    async def complete(self, messages, sampling, tools=()):
        await asyncio.sleep(self.delay_s)
        return await super().complete(messages, sampling, tools)


async def actor(folder, url, key, name, first=0, groups=None, delay_s=0.0):
    """Play sums until SIGTERM, or `groups` of them."""
    client = Slow(lambda messages, sampling: str(sampling.seed % 9))
    client.delay_s = delay_s
    tasks = (
        Task(env_id="ludic/Arithmetic-v0", seed=seed, sampling=Sampling(seed=seed))
        for seed in islice(count(first), groups)
    )
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)

    async def refresh():
        found = newest(Path(folder) / "published")
        client.policy_version = found.version if found else 0
        return found and found.version

    await run_pipeline_actor(
        tasks,
        lambda env: ChatPolicy(client, LatestObservation(), system_prompt=""),
        open_queue(url, key),
        refresh,
        ActorOptions(concurrency=8, heartbeat_s=0.2),
        name=name,
        stop=stop,
    )


def main(order):
    faulthandler.enable()
    role = {"trainer": trainer, "actor": actor}[order.pop("role")]
    redis_queue.TIMEOUT_S = order.pop("timeout_s", redis_queue.TIMEOUT_S)
    try:
        asyncio.run(role(**order))
    except Superseded:
        traceback.print_exc()
        sys.exit(SUPERSEDED)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
