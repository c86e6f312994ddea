import gzip
import json
import os
import pickle
import tracemalloc

import pytest

from envs_registry.data_sets import NOT_STATED
from ludic_gym.data import load
from ludic_gym.data.hub import HubData, licence_of
from ludic_gym.data.load import Origin, Several, load_rows, locate
from ludic_gym.data.row import text_field
from ludic_gym.errors import ConfigError, DataError, SkippedRowsWarning


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
        (b'{"word": [3]}', r"line 1: no text in field 'word' .it is \[3\]"),
        (
            b'{"Word": "a"}',
            r"no text in field 'word' \(fields: \['Word'\]\).*fields=\{",
        ),
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
    assert Origin("rows.jsonl", "file", "0" * 16).licence == licence_of("org/words") == NOT_STATED


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
def test_rows_of_a_large_data_set_are_read_when_they_are_asked_for(hub_folder, monkeypatch):
    held = load_rows("org/words", word, sample=hub_folder)
    monkeypatch.setattr(load, "LARGE_BYTES", 0)
    rows = load_rows("org/words", word, sample=hub_folder, fields={"word": "{word}"})
    assert not isinstance(rows.items, tuple)
    assert (tuple(rows), rows.origin) == (held.items, held.origin)
    assert tuple(pickle.loads(pickle.dumps(rows))) == held.items


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
    with pytest.raises(DataError, match=r"1 of 2 rows .*rows\.parquet row 1: no text in field"):
        load_rows(str(path), word, sample=path)


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


BAD = b'{"word": "a"}\n{"word": " "}\n{"word": \n{"word": "b"}\n{"word": [1]}\n{}\n'


def test_all_bad_rows_are_counted_before_the_first_is_an_error(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(BAD)
    with pytest.raises(DataError) as error:
        load_rows(str(path), word, sample=path)
    text = str(error.value)
    assert text.startswith("rows.jsonl: 4 of 6 rows cannot be used: ")
    # The error names the first three.
    assert [f"line {n}: " in text for n in (2, 3, 5, 6)] == [True, True, True, False]
    assert "on_bad_row='skip'" in text


def test_bad_rows_are_left_out_with_a_report(tmp_path):
    path, good = tmp_path / "rows.jsonl", tmp_path / "good.jsonl"
    path.write_bytes(BAD)
    good.write_bytes(b'{"word": "a"}\n{"word": "b"}\n')
    with pytest.warns(SkippedRowsWarning, match=r"^rows.jsonl: 4 of 6 rows cannot be used: .*;"):
        rows = load_rows(str(path), word, sample=path, on_bad_row="skip")
    assert rows.items == ("a", "b")
    assert (rows.bad.count, rows.bad.total, len(rows.bad.reasons)) == (4, 6, 3)
    # The hash is of the rows that are asked, and results name the number of the others.
    digest = load_rows(str(good), word, sample=path).origin.hash
    assert str(rows.origin) == f"rows.jsonl without 4 rows@{digest}"


def test_rows_that_are_all_bad_are_an_error_in_any_case(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"word": 1e999}\n')
    with pytest.raises(DataError, match=r"1 of 1 rows cannot be used: .*it is inf"):
        load_rows(str(path), word, sample=path, on_bad_row="skip")
    with pytest.raises(ConfigError, match=r"on_bad_row is one of \('error', 'skip'\), got 'drop'"):
        load_rows(str(path), word, sample=path, on_bad_row="drop")


def letters(row):
    """The letters of the field "word", each a question of its own."""
    return Several(text_field(row, "word").replace("-", ""))


LINES = [{"word": "\u00e9"}, {"word": "-"}, {"word": "xy", "n": {"k": [1, None]}}, {"word": "zzz"}]


def large_file(folder, name):
    """A file of a line with a byte-order mark, a blank line, and one in CRLF; or of parquet."""
    path = folder / name
    if path.suffix == ".parquet":
        pyarrow = pytest.importorskip("pyarrow", reason="needs the extra `data`")
        from pyarrow import parquet

        parquet.write_table(pyarrow.Table.from_pylist(LINES), path, row_group_size=2)
    else:
        lines = [json.dumps(line, ensure_ascii=False) for line in LINES]
        text = "\ufeff" + lines[0] + "\n\n" + lines[1] + "\r\n" + "\n".join(lines[2:])
        path.write_bytes(text.encode())
    return path


@pytest.mark.parametrize("name", ["rows.jsonl", "rows.parquet"])
def test_rows_of_a_large_file_are_read_when_they_are_asked_for(name, tmp_path, monkeypatch):
    path = large_file(tmp_path, name)
    held = load_rows(str(path), letters, sample=path)
    assert held.items == tuple("éxyzzz")
    monkeypatch.setattr(load, "LARGE_BYTES", 0)
    os.utime(path, ns=(1, 1))
    rows = load_rows(str(path), letters, sample=path)
    assert not isinstance(rows.items, tuple)
    assert (tuple(rows), rows[-1], rows[1:3]) == (held.items, "z", ("x", "y"))
    assert rows.origin == held.origin
    assert tuple(pickle.loads(pickle.dumps(rows))) == held.items
    some = rows.chosen(lambda letter: letter in "éz")
    assert (len(some), some[0], some[3], some.origin) == (4, "é", "z", rows.origin)
    os.utime(path, ns=(2, 2))
    with pytest.raises(DataError, match="has changed since it was read"):
        rows[0]


def test_a_large_file_is_never_in_memory_as_a_whole(tmp_path, monkeypatch):
    path = tmp_path / "rows.jsonl"
    with path.open("w") as file:
        for i in range(200):
            file.write(json.dumps({"word": f"w{i}" + "x" * 50_000}) + "\n")
    monkeypatch.setattr(load, "LARGE_BYTES", 1_000_000)
    tracemalloc.start()
    try:
        rows = load_rows(str(path), word, sample=path)
        first, last = rows[0], rows[199]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (first[:3], last[:5], len(rows)) == ("w0x", "w199x", 200)
    # A file of ten megabytes; a line of fifty kilobytes is held a few times.
    assert peak < 1_500_000
