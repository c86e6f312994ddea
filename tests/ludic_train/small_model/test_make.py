import asyncio
from dataclasses import replace

import pytest

import ludic_train as lt
from ludic_gym.types import Sampling
from ludic_train.commands.model import main
from ludic_train.engine.client import LocalChatClient
from ludic_train.errors import ModelNotFound
from ludic_train.models.chat_template import render_chat
from ludic_train.models.load import load_model
from ludic_train.models.tokenizer import load_tokenizer
from ludic_train.small_model import make
from ludic_train.small_model.lessons import IN_TAGS, Lesson
from ludic_train.small_model.make import SIZES, is_made, make_small_model

LESSONS = (
    Lesson(env_id="ludic/Arithmetic-v0", share=1, questions=2, replies=IN_TAGS),
    Lesson(env_id="ludic/ConnectFour-v0", share=1),
)
CUT_DOWN = replace(
    SIZES["tiny"], hidden_size=32, vocab_size=300, dialogs=12, updates=3, rows=4, further=1
)


@pytest.fixture(autouse=True)
def cache(monkeypatch, tmp_path):
    monkeypatch.setenv("LUDIC_CACHE", str(tmp_path / "cache"))


@pytest.mark.long
async def test_equal_seeds_make_equal_files(tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        await make_small_model(CUT_DOWN, tmp_path / name, lessons=LESSONS, seed=seed)
    a, b, c = ((tmp_path / name / "model.safetensors").read_bytes() for name in "abc")
    assert a == b != c
    assert len({(tmp_path / name / "tokenizer.json").read_bytes() for name in "ab"}) == 1


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder with a model, and the numbers of the updates that were reported."""
    folder, updates = tmp_path_factory.mktemp("made") / "model", []
    made = make_small_model(
        CUT_DOWN, folder, lessons=LESSONS, on_update=lambda number, _: updates.append(number)
    )
    asyncio.run(made)
    return folder, updates


async def test_the_model_is_a_llama_with_tied_embeddings_that_can_be_sampled_from(made):
    folder, updates = made
    assert updates == [1, 2, 3]
    model, tokenizer = load_model(folder)
    assert model.config.model_type == "llama"
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    client = LocalChatClient(model, tokenizer)
    dialog = [{"role": "system", "content": "Add."}, {"role": "user", "content": "2 + 3?"}]
    completion = await client.complete(dialog, Sampling(max_tokens=4))
    assert 1 <= len(completion.completion_ids) <= 4
    # Each digit is a token.
    assert len(tokenizer.encode("2024", add_special_tokens=False)) == 4
    # <|im_start|>, the role, a line break; the text; <|im_end|>, a line break.
    text = tokenizer.decode(render_chat(tokenizer, [{"role": "system", "content": "Hi"}]))
    assert text == "<|im_start|>system\nHi<|im_end|>\n<|im_start|>assistant\n"


def test_a_model_is_known_by_all_that_it_was_made_from(made, tmp_path):
    folder, _ = made
    assert is_made(folder, CUT_DOWN, 0, LESSONS)
    assert not is_made(folder, CUT_DOWN, 1, LESSONS)
    assert not is_made(folder, replace(CUT_DOWN, updates=4), 0, LESSONS)
    assert not is_made(folder, CUT_DOWN, 0, LESSONS[:1])
    assert not is_made(tmp_path, CUT_DOWN, 0, LESSONS)


async def test_a_folder_that_cannot_be_written_is_an_error_before_the_episodes(tmp_path):
    (tmp_path / "file").write_text("")
    nowhere = [replace(LESSONS[0], env_id="ludic/Nowhere-v0")]
    with pytest.raises(NotADirectoryError):
        await make_small_model(CUT_DOWN, tmp_path / "file" / "made", lessons=nowhere)


@pytest.mark.long
def test_the_command_makes_a_model_once_and_names_it(monkeypatch, capsys):
    monkeypatch.setitem(make.SIZES, "tiny", replace(CUT_DOWN, dialogs=60))
    assert main(["--size", "tiny"]) == 0
    assert "ludic-tiny 3/3" in capsys.readouterr().out
    assert load_model("ludic-tiny")[0].config.hidden_size == 32
    assert load_tokenizer("ludic-tiny").chat_template
    assert main(["--size", "tiny"]) == 0
    assert "already" in capsys.readouterr().out


def test_a_model_that_was_not_made_is_an_error_with_the_command():
    with pytest.raises(ModelNotFound, match=r"ludic model$"):
        load_model("ludic-small")
    with pytest.raises(ModelNotFound, match=r"ludic model --size tiny$"):
        load_tokenizer("ludic-tiny")
    with pytest.raises(ModelNotFound, match=r"ludic model$"):
        lt.policy_from_run("ludic-small")
