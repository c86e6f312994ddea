import os

import pytest

from ludic_gym.data import HubData, Row, load, locate, text_field
from ludic_gym.errors import ConfigError, DataError


def word(row):
    """The field "word"."""
    return text_field(row, "word")


@pytest.fixture
def rows_file(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"word": "été"}\n\n{"word": "you\u2028me"}\n', encoding="utf-8")
    return path


def test_a_file_and_the_sample_are_read_line_by_line(rows_file):
    assert load(str(rows_file), word, sample=rows_file) == ("été", "you\u2028me")
    assert load("sample", word, sample=rows_file) == ("été", "you\u2028me")


def test_rows_are_read_once(rows_file):
    assert load("sample", word, sample=rows_file) is load(str(rows_file), word, sample=rows_file)


def test_a_file_that_has_changed_is_read_again(rows_file):
    load("sample", word, sample=rows_file)
    rows_file.write_text('{"word": "new"}\n')
    os.utime(rows_file, ns=(1, 1))
    assert load("sample", word, sample=rows_file) == ("new",)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"word": "a"}\n{"word": ', r"rows.jsonl line 2: not JSON .*'\{\"word\": '"),
        (b'["a"]', "line 1: a row is a JSON object"),
        (b'{"word": 3}', "line 1: no text in field 'word' .it is 3"),
        (b'{"Word": "a"}', r"no text in field 'word' \(fields: \['Word'\]\)"),
        (b"\n\n", "there are no rows"),
        (b"\xff\xfe", "UTF-8"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(tmp_path, content, complaint):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=complaint):
        load(str(path), word, sample=path)


def test_a_file_that_is_missing_is_named(tmp_path):
    with pytest.raises(DataError, match=r"absent\.jsonl: cannot be read \(No such file"):
        load(str(tmp_path / "absent.jsonl"), word, sample=tmp_path)


def test_a_name_that_is_neither_file_nor_hub_id_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="hub id like"):
        load("gsm8k", word, sample=tmp_path)


def test_a_file_goes_without_split(rows_file):
    with pytest.raises(ConfigError, match="split='train'"):
        load("sample", word, sample=rows_file, split="train")


def test_a_hub_id_stands_for_its_test_split_unless_told_otherwise(tmp_path):
    assert locate("a/b", sample=tmp_path, config=None, split=None) == HubData("a/b", None, "test")
    train = locate("a/b", sample=tmp_path, config="main", split="train")
    assert train == HubData("a/b", "main", "train")


@pytest.fixture
def hub_folder(tmp_path, monkeypatch):
    """A data set "org/words": `datasets` takes a folder of that name for the hub's."""
    pytest.importorskip("datasets", reason="needs the extra `data`")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "org" / "words"
    folder.mkdir(parents=True)
    (folder / "test.jsonl").write_text('{"word": "a"}\n{"word": "b"}\n')
    return tmp_path


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_hub_data_set_is_read_through_datasets(hub_folder):
    assert load("org/words", word, sample=hub_folder) == ("a", "b")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_split_that_does_not_exist_is_named(hub_folder):
    with pytest.raises(DataError, match="org/words, split 'dev': cannot be loaded"):
        load("org/words", word, sample=hub_folder, split="dev")


def test_parquet_is_read_row_by_row(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra `data`")
    from pyarrow import parquet

    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"word": ["a", None]}), path)
    assert load(str(path), lambda row: row.fields["word"], sample=path) == ("a", None)
    with pytest.raises(DataError, match=r"rows\.parquet row 1: no text in field 'word'"):
        load(str(path), word, sample=path)


def test_a_broken_parquet_file_is_named(tmp_path):
    pytest.importorskip("pyarrow", reason="needs the extra `data`")
    path = tmp_path / "rows.parquet"
    path.write_bytes(b"not parquet")
    with pytest.raises(DataError, match=r"rows\.parquet: cannot be read as parquet"):
        load(str(path), word, sample=path)


def test_a_text_field_must_hold_text():
    row = Row("here", {"word": "a", "blank": " "})
    assert text_field(row, "word") == "a"
    with pytest.raises(DataError, match="here: no text in field 'blank'"):
        text_field(row, "blank")
