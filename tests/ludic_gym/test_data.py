import gzip
import json
import os

import pytest

from ludic_gym.data.hub import HUB_SETS, UNKNOWN, HubData, licence_of
from ludic_gym.data.load import Origin, load_rows, locate
from ludic_gym.data.row import Row, rename_fields, text_field
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
    assert list(load_rows(str(rows_file), word, sample=rows_file)) == ["été", "you\u2028me"]
    assert list(load_rows("sample", word, sample=rows_file)) == ["été", "you\u2028me"]


def test_rows_are_read_once(rows_file):
    assert load_rows("sample", word, sample=rows_file) is load_rows(None, word, sample=rows_file)


def test_a_file_that_has_changed_is_read_again(rows_file):
    load_rows("sample", word, sample=rows_file)
    rows_file.write_text('{"word": "new"}\n')
    os.utime(rows_file, ns=(1, 1))
    assert load_rows("sample", word, sample=rows_file)[0] == "new"


def test_the_hash_is_of_the_content_wherever_it_is_from(tmp_path):
    rows = [{"word": "a", "more": 1}, {"word": "b", "more": 2}]
    plain, packed, other = (tmp_path / f"{name}" for name in ("a.jsonl", "b.jsonl.gz", "c.jsonl"))
    plain.write_text("\n".join(json.dumps(row) for row in rows))
    packed.write_bytes(
        gzip.compress("\n\n".join(json.dumps(dict(sorted(r.items()))) for r in rows).encode())
    )
    other.write_text("\n".join(json.dumps({**row, "more": 0}) for row in rows))
    hashes = [load_rows(str(p), word, sample=p).origin.hash for p in (plain, packed, other)]
    assert hashes[0] == hashes[1] != hashes[2]
    assert len(hashes[0]) == 16


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b'{"word": "a"}\n{"word": ', r"rows.jsonl line 2: not JSON .*'\{\"word\": '"),
        (b'["a"]', "line 1: a row is a JSON object"),
        (b'{"word": 3}', "line 1: no text in field 'word' .it is 3"),
        (b'{"Word": "a"}', r"no text in field 'word' \(fields: \['Word'\]\)"),
        (b"\n\n", "rows.jsonl: there are no rows"),
        (b"\xff\xfe", "UTF-8"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_with_its_place(tmp_path, content, complaint):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(content)
    with pytest.raises(DataError, match=complaint):
        load_rows(str(path), word, sample=path)


@pytest.mark.parametrize("content", [b"no gzip", gzip.compress(b'{"word": "a"}', mtime=0)[:-9]])
def test_a_broken_gzip_file_is_named(tmp_path, content):
    path = tmp_path / "rows.jsonl.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"rows\.jsonl\.gz: cannot be read as gzipped UTF-8 text"):
        load_rows(str(path), word, sample=path)


@pytest.mark.parametrize("name", ["sample", "rows.jsonl"])
def test_a_file_and_the_sample_go_without_split(name, rows_file):
    with pytest.raises(ConfigError, match="split='train'"):
        load_rows(name, word, sample=rows_file, split="train")


def test_a_folder_has_a_file_for_each_split(tmp_path):
    (tmp_path / "test.jsonl").write_text('{"word": "a"}')
    (tmp_path / "train.jsonl.gz").write_bytes(gzip.compress(b'{"word": "b"}', mtime=0))
    test, train = (
        load_rows(str(tmp_path), word, sample=tmp_path, split=s) for s in (None, "train")
    )
    assert (test.items, test.origin.split, test.origin.name) == (("a",), "test", "test.jsonl")
    assert (train.items, train.origin.split) == (("b",), "train")
    with pytest.raises(DataError, match=r"no file dev\.jsonl.*there are: test.jsonl, train.jsonl"):
        load_rows(str(tmp_path), word, sample=tmp_path, split="dev")


def test_a_hub_id_stands_for_its_test_split_unless_told_otherwise(tmp_path):
    assert locate("a/b", sample=tmp_path) == HubData("a/b", None, "test", "test")
    train = locate("a/b", sample=tmp_path, config="main", split="train")
    assert train == HubData("a/b", "main", "train", "train")


def test_a_split_without_a_name_asks_for_the_real_data_set(tmp_path):
    real = locate(None, sample=tmp_path, real="cais/mmlu", split="train")
    assert real == HubData("cais/mmlu", "all", "auxiliary_train", "train")
    subject = locate(None, sample=tmp_path, real="cais/mmlu", config="anatomy")
    assert subject == HubData("cais/mmlu", "anatomy", "test", "test")


def test_rows_have_the_licence_of_their_data_set():
    assert (
        Origin("google-research-datasets/mbpp:sanitized", "test", "0" * 16).licence == "CC BY 4.0"
    )
    assert Origin("sample", "sample", "0" * 16).licence == "Apache-2.0"
    assert Origin("rows.jsonl", "file", "0" * 16).licence == licence_of("org/words") == UNKNOWN
    # Every set that the package names has a licence.
    assert UNKNOWN not in {licence_of(name) for name in HUB_SETS}


@pytest.fixture
def hub_folder(tmp_path, monkeypatch):
    """A data set "org/words": `datasets` takes a folder of that name for the hub's."""
    pytest.importorskip("datasets", reason="needs the extra `data`")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    folder = tmp_path / "org" / "words" / "data"
    folder.mkdir(parents=True)
    (folder / "test.jsonl").write_text('{"word": "a"}\n{"word": "b"}\n')
    return tmp_path


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_hub_data_set_is_read_through_datasets(hub_folder):
    rows = load_rows("org/words", word, sample=hub_folder)
    assert rows.items == ("a", "b")
    assert (rows.origin.name, rows.origin.split) == ("org/words", "test")


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_what_cannot_be_loaded_is_named_with_the_two_other_ways(hub_folder):
    with pytest.raises(DataError, match=r"org/words, split 'dev': .*data='rows.jsonl'.*sample"):
        load_rows("org/words", word, sample=hub_folder, split="dev")


def test_parquet_is_read_row_by_row(tmp_path):
    pyarrow = pytest.importorskip("pyarrow", reason="needs the extra `data`")
    from pyarrow import parquet

    path = tmp_path / "rows.parquet"
    parquet.write_table(pyarrow.table({"word": ["a", None]}), path)
    assert list(load_rows(str(path), lambda row: row.fields["word"], sample=path)) == ["a", None]
    with pytest.raises(DataError, match=r"rows\.parquet row 1: no text in field 'word'"):
        load_rows(str(path), word, sample=path)


def test_a_field_is_renamed_unless_its_name_is_taken():
    row = Row("here", {"type": "a", "kind": "b"})
    assert rename_fields(row, {"type": "subject"}).fields["subject"] == "a"
    assert rename_fields(row, {"type": "kind"}).fields["kind"] == "b"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.json", '[{"a": "1"}, {"a": "2, 3"}]'),
        ("rows.json", '{"canary": "x", "examples": [{"a": "1"}, {"a": "2, 3"}]}'),
        ("rows.json", '{"first": {"a": "1"}, "second": {"a": "2, 3"}}'),
        ("rows.csv", '\ufeffa\n1\n"2, 3"\n'),
    ],
)
def test_lists_and_tables_are_rows(name, text, tmp_path):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    rows = load_rows(str(path), lambda row: (row.where, row.fields["a"]), sample=path)
    assert list(rows) == [(f"{path} row 0", "1"), (f"{path} row 1", "2, 3")]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("rows.json", "[1]", r"rows are a list of JSON objects, got '\[1\]'"),
        ("rows.json", "[", "not JSON"),
        ("rows.csv", "a,b\n1\n", "row 0: not as many cells as names"),
        ("rows.csv", 'a\n"1', "cannot be read as a CSV table"),
    ],
)
def test_a_list_or_table_that_cannot_be_read_is_named(name, text, message, tmp_path):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        load_rows(str(path), lambda row: row, sample=path)
