"""Params that travel through a folder."""

import asyncio

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from ludic_gym.types import Sampling
from ludic_train.cluster.publish.folder import FolderPublisher, follow_folder
from ludic_train.engine.client import LocalChatClient
from ludic_train.errors import PublishError
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.sources.publisher import newest
from ludic_vllm.files import params_in

TOKENIZER = make_tokenizer(["a b c"])
ASKED = [{"role": "user", "content": "a"}]


def tiny_model(seed):
    shape = {"hidden_size": 16, "num_layers": 1, "num_heads": 2, "num_kv_heads": 1}
    return make_tiny_model(TOKENIZER, seed=seed, **shape)


def same(one, two):
    params = zip(one.parameters(), two.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in params)


def following(model, folder):
    """A client of the model, and what loads newer params."""
    client = LocalChatClient(model, TOKENIZER)
    return client, follow_folder(client, model, folder)


async def test_an_actor_samples_from_what_was_published_last(tmp_path):
    actor = tiny_model(0)
    client, refresh = following(actor, tmp_path)
    assert await refresh() is None
    publisher = FolderPublisher(tmp_path)
    for version in (4, 5):
        trainer = tiny_model(version)
        await publisher.publish(trainer.named_parameters(), version)
        assert await refresh() == version
        assert same(actor, trainer)
        completion = await client.complete(ASKED, Sampling(max_tokens=2))
        assert completion.policy_version == version


async def test_what_never_changes_stays_with_the_readers(tmp_path):
    actor, trainer = tiny_model(0), tiny_model(1)
    _, refresh = following(actor, tmp_path)
    frozen = [name for name, _ in trainer.named_parameters() if "q_proj" in name]
    await FolderPublisher(tmp_path, frozen=frozen).publish(trainer.named_parameters(), 1)
    assert await refresh() == 1
    before = dict(tiny_model(0).named_parameters())
    for name, param in trainer.named_parameters():
        expected = before[name] if name in frozen else param
        assert torch.equal(actor.get_parameter(name), expected), name


async def test_a_run_that_goes_back_publishes_a_version_again_with_other_params(tmp_path):
    actor = tiny_model(0)
    (_, refresh), publisher = following(actor, tmp_path), FolderPublisher(tmp_path)
    for version, seed in ((7, 1), (5, 2), (5, 3)):
        await publisher.publish(tiny_model(seed).named_parameters(), version)
        assert await refresh() == version
        assert same(actor, tiny_model(seed))


async def test_what_is_in_flight_continues_with_new_params_and_names_the_versions(tmp_path):
    model = tiny_model(0)
    client, refresh = following(model, tmp_path)
    await FolderPublisher(tmp_path).publish(tiny_model(1).named_parameters(), 1)
    calls = [client.complete(ASKED, Sampling(max_tokens=100, seed=i)) for i in range(4)]
    before = [asyncio.ensure_future(each) for each in calls]
    while not client.num_sampled:
        await asyncio.sleep(0)
    await client.hold()
    assert await refresh() == 1
    client.resume()
    completions = await asyncio.gather(*before)
    assert {each.policy_version for each in completions} == {0}
    assert any(each.versions and each.versions[-1] == 1 for each in completions)


async def test_params_of_a_cpu_are_written_without_a_copy(tmp_path):
    trainer = tiny_model(1)
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        await FolderPublisher(tmp_path).publish(trainer.named_parameters(), 1)
    allocated = sum(each.self_cpu_memory_usage for each in seen.key_averages())
    assert allocated < sum(param.nbytes for param in trainer.parameters()) / 10
    written = dict(params_in(newest(tmp_path).path))
    assert all(torch.equal(written[name], param) for name, param in trainer.named_parameters())


async def test_only_the_newest_versions_are_kept(tmp_path):
    publisher = FolderPublisher(tmp_path, keep_last=2)
    for version in range(5):
        await publisher.publish(tiny_model(version).named_parameters(), version)
    assert sorted(path.name[:7] for path in tmp_path.glob("v*")) == ["v000003", "v000004"]
    assert newest(tmp_path).version == 4


async def test_params_of_another_model_are_refused_and_change_nothing(tmp_path):
    actor = tiny_model(0)
    other = make_tiny_model(TOKENIZER, hidden_size=32, num_layers=1, num_heads=2, num_kv_heads=1)
    await FolderPublisher(tmp_path).publish(other.named_parameters(), 1)
    with pytest.raises(PublishError, match="not of this model"):
        await following(actor, tmp_path)[1]()
    assert same(actor, tiny_model(0))


@pytest.mark.parametrize("text", ["{", "[]", '{"version": "x", "folder": "v"}', '{"version": 1}'])
def test_a_pointer_to_nothing_is_refused(tmp_path, text):
    (tmp_path / "newest.json").write_text(text)
    with pytest.raises(PublishError, match="names no published version"):
        newest(tmp_path)


def test_a_pointer_cannot_lead_out_of_its_folder(tmp_path):
    (tmp_path / "newest.json").write_text('{"version": 1, "folder": "../../etc"}')
    assert newest(tmp_path).path == tmp_path / "etc"


async def test_a_cancelled_publication_leaves_nothing_that_a_reader_could_take(tmp_path):
    param = torch.zeros(2**25)
    publishing = asyncio.ensure_future(
        FolderPublisher(tmp_path).publish([("weight", param)], version=1)
    )
    # The thread has begun to write, and not ended.
    while not list(tmp_path.glob("v*")):
        await asyncio.sleep(0)
    publishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await publishing
    param.fill_(1)
    # It is not published, and its file is gone: no reader finds a part of it.
    assert newest(tmp_path) is None
    assert list(tmp_path.glob("v*")) == []
