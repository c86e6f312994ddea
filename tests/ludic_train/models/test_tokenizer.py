import pytest

from ludic_gym.commands.main import main
from ludic_gym.errors import ConfigError
from ludic_gym.view.transcript import token_texts_from
from ludic_train.models.load import save_model
from ludic_train.models.tiny import make_tiny_model
from ludic_train.models.tokenizer import make_tokenizer


@pytest.mark.parametrize("place", ["", "tokenizer.json", "run"])
def test_every_token_has_its_text(tmp_path, place):
    tokenizer = make_tokenizer(["seven and eight"])
    folder = tmp_path / "run" / "model" if place == "run" else tmp_path
    save_model(make_tiny_model(tokenizer), tokenizer, folder)
    ids = tokenizer.encode("seven and eight", add_special_tokens=False)
    texts = token_texts_from(tmp_path / place)(ids)
    assert "".join(texts) == "seven and eight"
    assert len(texts) == len(ids)


def test_a_folder_without_a_tokenizer_is_refused(tmp_path, capsys):
    with pytest.raises(ConfigError, match=r"holds no tokenizer\.json; name the folder of a model"):
        token_texts_from(tmp_path)
    assert main(["view", str(tmp_path), "--tokenizer", str(tmp_path)]) == 2
