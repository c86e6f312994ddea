import json
from contextlib import closing

import numpy as np
import pytest

from ludic_gym.harness import Harness
from ludic_train.algorithms.presets import sft
from ludic_train.engine.client import LocalChatClient
from ludic_train.errors import EmptyBatch
from ludic_train.loggers.loggers import JSONLLogger, read_metrics
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.runs.learner import Learner
from ludic_train.runs.run import Run, Stage, run_stages
from ludic_train.sources.publisher import InProcessPublisher
from ludic_train.trainer.trainer import Trainer
from ludic_train.types import SAWBatch, SAWItem


class RunsOut:
    """A source with `batches` batches of one row."""

    def __init__(self, batches):
        self.left = batches

    async def next_batch(self, algo):
        if not self.left:
            raise EmptyBatch("every group earned the same")
        self.left -= 1
        mask = np.array([False, True])
        row = SAWItem(
            input_ids=np.array([5, 6], np.int32),
            action_mask=mask,
            weight=mask.astype(np.float32),
        )
        return SAWBatch(items=(row,))

    def state_dict(self):
        return {}

    def load_state_dict(self, state):
        pass


async def carried_out(out, *stages, imitates=False):
    tokenizer = make_tokenizer(["a b c"])
    model = make_tiny_model(tokenizer, hidden_size=16, num_heads=2, num_kv_heads=1)
    client = LocalChatClient(model, tokenizer)
    learner = Learner(
        model=model,
        tokenizer=tokenizer,
        client=client,
        publisher=InProcessPublisher(client),
        harness=Harness(),
    )

    async def evaluate(update):
        return {"update": float(update)}

    with closing(JSONLLogger(out / "metrics.jsonl")) as logger:
        run = Run(
            out=out,
            learner=learner,
            stages=tuple(
                Stage(
                    name=f"stage {i}",
                    trainer=Trainer(model, sft(), source),
                    updates=n,
                    imitates=imitates and i == 0,
                )
                for i, (source, n) in enumerate(stages)
            ),
            evaluate=evaluate,
            eval_every=2,
            logger=logger,
        )
        await run_stages(run, resume=False)
    return run


async def test_a_run_writes_where_and_in_which_types_it_computes(tmp_path):
    run = await carried_out(tmp_path, (RunsOut(2), 2))
    facts = json.loads((tmp_path / "compute.json").read_text())
    count = sum(param.numel() for param in run.learner.model.parameters())
    assert facts["trained"] == {"float32 on cpu": count}
    assert facts["moments"] == {"float32 on cpu": 2 * count}
    assert facts["frozen"] == {}
    assert (facts["device"], facts["card"], facts["ranks"]) == ("cpu", None, 1)
    assert facts["attention"] == [{"kernel": "flash", "dtype": "float32"}]
    assert facts["cache"] == "float32 on cpu"
    assert facts["padding"] is None


async def test_updates_of_a_run_that_imitates_first_are_marked(tmp_path):
    await carried_out(tmp_path / "a", (RunsOut(2), 2), (RunsOut(1), 1), imitates=True)
    records = read_metrics(tmp_path / "a" / "metrics.jsonl")
    marks = [(r["update"], r["imitation"]) for r in records if "imitation" in r]
    assert marks == [(1, 1.0), (2, 1.0), (3, 0.0)]
    await carried_out(tmp_path / "b", (RunsOut(1), 1))
    assert "imitation" not in (tmp_path / "b" / "metrics.jsonl").read_text()


async def test_a_stage_with_nothing_left_to_learn_ends_with_a_note(tmp_path, capsys):
    run = await carried_out(tmp_path, (RunsOut(2), 5), (RunsOut(9), 2))
    assert [stage.trainer.version for stage in run.stages] == [2, 2]
    said = capsys.readouterr().out
    assert "stage 0 ended after 2 updates: every group earned the same" in said


async def test_a_stage_that_never_had_anything_to_learn_is_an_error(tmp_path):
    with pytest.raises(EmptyBatch):
        await carried_out(tmp_path, (RunsOut(0), 5))


async def test_evaluations_and_checkpoints_come_at_their_updates(tmp_path):
    run = await carried_out(tmp_path, (RunsOut(9), 5))
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    asked = [(line["update"], line["eval/update"]) for line in lines if "eval/update" in line]
    assert asked == [(0, 0.0), (2, 2.0), (4, 4.0), (5, 5.0)]
    assert run.checkpoints.steps() == [4, 5]
    assert (tmp_path / "model" / "model.safetensors").is_file()


async def test_a_stage_after_one_that_taught_all_there_is_ends_with_a_note(tmp_path, capsys):
    run = await carried_out(tmp_path, (RunsOut(9), 2), (RunsOut(0), 5))
    assert [stage.trainer.version for stage in run.stages] == [2, 0]
    assert "stage 1 ended after 0 updates: every group" in capsys.readouterr().out
