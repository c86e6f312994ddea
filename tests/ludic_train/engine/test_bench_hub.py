"""`ludic bench --model hf/...`: models that this process loads."""

import json

import pytest

from ludic_gym.commands.main import main
from ludic_train.models.load import save_model

SUMS = ["bench", "ludic/Arithmetic-v0", "--episodes", "2", "--max-tokens", "4"]


def test_a_folder_in_the_format_of_hugging_face_is_played(tmp_path, model, tokenizer):
    save_model(model, tokenizer, tmp_path / "model")
    name = f"hf/{tmp_path / 'model'}"
    assert main([*SUMS, "--model", name, "--out", str(tmp_path / "out")]) == 0
    lines = (tmp_path / "out" / "ludic-Arithmetic-v0.jsonl").read_text().splitlines()
    records = [json.loads(line) for line in lines]
    assert [record["policy"] for record in records] == [name] * 2
    assert all(0 < record["score"]["completion_tokens"] <= 4 for record in records)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--model", "hf//nowhere/model"], "'/nowhere/model' is neither a folder nor in the cache"),
        (["--model", "hf/org/tiny", "--param", "top_p=none"], "sends no requests"),
    ],
)
def test_what_cannot_be_loaded_is_one_line(capsys, options, complaint):
    assert main([*SUMS, *options]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert len(error.splitlines()) == 1
