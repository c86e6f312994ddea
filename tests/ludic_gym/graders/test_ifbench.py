"""IFBench: each kind with texts that follow it and texts that do not, by the published rules."""

import gzip
import json
import os
import string
import time
from pathlib import Path

import gymnasium as gym
import pytest

from ludic_gym.errors import DataError, GraderError, MissingPackage
from ludic_gym.graders.ifbench import CAPITALS, KINDS, ONLY_THIS, require_packages, sentences
from ludic_gym.graders.ifeval import Instruction, instruction, instructions_followed

LETTERS = string.ascii_lowercase
CSV, TSV = (
    "\n".join([head, *[gap.join('"1" "a b" "c&d" "2" "3"'.replace("a b", "ab").split())] * count])
    for head, gap, count in (
        ("ProductID,Category,Brand,Price,Stock", ",", 14),
        ('"StudentID"\t"Subject"\t"Grade"\t"Semester"\t"Score"', "\t", 3),
    )
)
QUESTIONS = [
    f"Question {i}. Why{'?' * i}\n" + "\n".join(f"{c}. x" for c in "ABCDE") for i in range(1, 5)
]
LANDS = [f"Land {i:02}" for i in range(60)]
WORDS = {f"keyword{i}": word for i, word in enumerate(("ash", "bay", "cob", "dew", "elk"), 1)}
SPAN = {"prompt_to_repeat": "Tell me how tides work now", "n_start": 2, "n_end": 4}

# Kind -> arguments, texts that follow it, texts that do not.
CASES = {
    "count:word_count_range": (
        {"min_words": 3, "max_words": 4.0},
        ["a b c", "a, b c-d"],
        ["a b", "a b c d e"],
    ),
    "count:unique_word_count": ({"N": 3}, ["red blue sky red"], ["red Red red, blue"]),
    "count:conjunctions": ({"small_n": 3}, ["and, but Or"], ["and and so", "android butter form"]),
    "count:person_names": ({"N": 2}, ["Emma met Liam.", "Miami, Emma"], ["Emma Emma", "emma liam"]),
    "count:numbers": ({"N": 2}, ["1,000 and 3.5", "a1 b2"], ["7", "1 2 3"]),
    "count:punctuation": (
        {},
        ["What?! a, b; c: d. e! f?"],
        ["a, b; c: d. e! f?", "What?! a, b; c: d."],
    ),
    "count:words_japanese": ({"N": 2}, ["one 日 three ひ", "one 22"], ["one two"]),
    "count:pronouns": (
        {"N": 3},
        ["He/she saw it.", "I, me and MINE"],
        ["He saw the sea.", "island items"],
    ),
    "count:keywords_multiple": (
        WORDS,
        ["ash " + "bay " * 2 + "cob " * 3 + "DEW " * 5 + "elk " * 7],
        ["ash " + "bay " * 2 + "cob " * 3 + "dew " * 5 + "elk " * 8, "ash bay cob dew elk"],
    ),
    "ratio:stop_words": ({"percentage": 50}, ["the sea", "cold grey sea"], ["it is the sea", "?!"]),
    "ratio:sentence_type": ({}, ["It is so. Is it? It is.", "No end"], ["It is so. Is it?"]),
    "ratio:sentence_balance": ({}, ["So it is. Is it? Yes!"], ["So it is. Is it?"]),
    "ratio:sentence_words": (
        {},
        ["One aa. Two bb! Six cc?"],
        ["One aa. Two bb!", "One a b. Two bb! Six cc?"],
    ),
    "ratio:overlap": (
        {"reference_text": "abcdef", "percentage": 50},
        # abc, bcd of abc, bcd, cdx, dxy.
        ["abcdxy"],
        ["abcdef", "xyz", "a"],
    ),
    "words:alphabet": ({}, ["Ants bring crumbs.", "you, zoo, again"], ["Ants crawl", "1 2", "?"]),
    "words:vowel": ({}, ["A cat sat; is it?"], ["Audio in", "a\nb", "ae io"]),
    "words:consonants": ({}, ["Strong winds"], ["Strong sea", "a"]),
    "words:palindrome": (
        {},
        ["radar level civic kayak refer rotor stats madam tenet Radar!"],
        ["radar level", "noon " * 10],
    ),
    "words:prime_lengths": ({}, ["the seven, is!"], ["four", "a"]),
    "words:start_verb": ({}, ["Run to the sea."], ["The sea."]),
    "words:repeats": ({"small_n": 2}, ["a sea, a sky"], ["a sea, A sky a"]),
    "words:odd_even_syllables": ({}, ["red table sun"], ["red sun"]),
    "words:last_first": (
        {},
        ["I see. See the sea! Sea air", "One."],
        ["I see. The sea.", "A. ! B."],
    ),
    "words:paragraph_last_first": (
        {},
        ["Sea of the sea.\n\nSun and sun"],
        ["Sea of the sea.\nSun and moon", "Sea and sea\n..."],
    ),
    "words:no_consecutive": ({}, ["red blue, red"], ["red, Roses"]),
    "words:keywords_specific_position": (
        {"keyword": " sea ", "n": 2, "m": 3},
        ["It is so. In the sea we swim."],
        ["The sea. The sea is so."],
    ),
    "words:words_position": ({"keyword": "sea"}, ["the sea is a sea."], ["the sea is.", "sea"]),
    "sentence:alliteration_increment": (
        {},
        ["We sing. Big bears come. Soft sea sounds."],
        ["Big bears come. We sing.", "We sing. So be it."],
    ),
    "sentence:keyword": (
        {"word": "sea", "N": 2},
        ["It is so. SEAS rise."],
        ["The sea is so. It rises.", "The sea."],
    ),
    "sentence:increment": ({"small_n": 1}, ["We go. We go on. We go on so."], ["We go. We went."]),
    "format:parentheses": ({}, ["([{([x])}])"], ["((((x))))", "(((((", "((((x)))]"]),
    "format:quotes": ({}, ['"a \'b "c" d\' e"'], ["\"a 'b' c\"", '"a" "b" "c"']),
    "format:options": ({"options": "yes/no/maybe"}, ["Yes.", "maybe"], ["yes, it is", "y"]),
    "format:newline": ({}, ["one\n\ntwo,\nthree"], ["one two\nthree"]),
    "format:emoji": (
        {},
        ["Good 😀. Bad 🙁!", "Good. 😀 Bad. 🙁"],
        ["Good. Bad 🙁", "Good 😀 day."],
    ),
    "format:line_indent": ({}, ["one\n two\n\n   three"], ["one\ntwo", " one\ntwo"]),
    "format:quote_unquote": (
        {},
        ['"Go" he said.', "none"],
        ['He said "go"', '"a""b" c', "“a” “b” c"],
    ),
    "format:list": ({"sep": "!?!?"}, ["!?!? one\n!?!? two"], ["!?!? one", "!? !?"]),
    "format:thesis": (
        {},
        ["<i>It is so.</i> For", "<em>It is so.</em> For"],
        ["<i>It is so.</i>", "<i> </i> For", "x"],
    ),
    "format:sub-bullets": ({}, ["* one\n - two\n* three\n - four"], ["* one\n - two\n* three"]),
    "format:no_bullets_bullets": (
        {},
        ["It is. So it is.\n* one\n* two", "It is.\nSo it is.\n\n* one\n* two"],
        [
            "It is.\n* one\n* two",
            "It is. So it is.\n* one",
            "It is. So it is.\n* one\n* two\nEnd.",
            "It is.\n\nSo it is.\n* one\n* two",
        ],
    ),
    "format:title_case": ({}, ["The Sea A 7"], ["The sea", "THE sEA"]),
    "format:output_template": (
        {},
        ["My Answer: a My Conclusion: b Future Outlook: c"],
        ["My answer: My Conclusion: Future Outlook:"],
    ),
    "format:no_whitespace": ({}, ["thesea"], ["the sea", "the\u2003sea"]),
    "custom:multiples": (
        {},
        ["14, 21, 28, 35, 42, 49", "14,21,28,35,42,49"],
        ["14, 21, 28", "7, 14"],
    ),
    "custom:mcq_count_length": (
        {},
        ["\n\n".join(QUESTIONS)],
        ["\n\n".join(QUESTIONS[::-1]), QUESTIONS[0], "x" + "\n".join(QUESTIONS)],
    ),
    "custom:reverse_newline": (
        {},
        ["\n".join(["Here:", "Zimbabwe.", *LANDS[::-1]])],
        ["\n".join(["Zimbabwe", *LANDS]), "Zimbabwe"],
    ),
    "custom:word_reverse": (
        {},
        ["Symbol the is eagle bald The"],
        ["The bald eagle is it", "eagle red bald"],
    ),
    "custom:character_reverse": ({}, ["Elgae dlaB ehT"], ["The bald eagle"]),
    "custom:sentence_alphabet": (
        {},
        [" ".join(f"{c.upper()}x is so." for c in LETTERS)],
        [
            " ".join(f"{c}x is so." for c in LETTERS[:-1]),
            " ".join(f"{c}x is so." for c in LETTERS[::-1]),
        ],
    ),
    "custom:european_capitals_sort": (
        {},
        [", ".join(CAPITALS).replace("Reykjavik", "Reykjavík")],
        [", ".join(CAPITALS[::-1]), "Oslo"],
    ),
    "custom:csv_city": (
        {},
        ["ID,Country,City,Year,Count" + "\n1,a,b,2000,3" * 7],
        [
            "ID,Country,City,Year,Count" + "\n1,a,b,2000" * 7,
            "ID,Country,City,Year,Count" + "\n1,a,b,2,3",
        ],
    ),
    "custom:csv_special_character": (
        {},
        [CSV],
        [CSV.replace("&", ""), CSV.replace("Brand", "Make")],
    ),
    "custom:csv_quotes": ({}, [TSV], [TSV.replace('"', ""), TSV.replace("\t", ",")]),
    "custom:date_format_list": (
        {},
        ["1769-08-15, 1821-05-05"],
        ["1768-08-15", "1800-02-30", "15.8.1769", "1800-13-01"],
    ),
    "repeat:repeat_change": (
        {"prompt_to_repeat": "Write a poem"},
        ["Sing a poem"],
        ["Write a poem", "Sing a song"],
    ),
    "repeat:repeat_simple": ({}, [ONLY_THIS, f" {ONLY_THIS.upper()}\n"], ["Fine."]),
    "repeat:repeat_span": (SPAN, ["How tides"], ["how tides work"]),
}


def test_every_kind_has_cases():
    assert CASES.keys() == KINDS.keys()
    assert len(KINDS) == 58


@pytest.mark.parametrize("kind", CASES)
def test_a_text_follows_an_instruction_or_does_not(kind):
    try:
        require_packages([kind])
    except (MissingPackage, GraderError) as error:
        pytest.skip(str(error))
    arguments, right, wrong = CASES[kind]
    asked = instruction(kind, arguments, KINDS)
    verdicts = {
        text: instructions_followed(text, [asked], kinds=KINDS)[0] for text in right + wrong
    }
    assert verdicts == {**dict.fromkeys(right, True), **dict.fromkeys(wrong, False)}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("Dr. No paid 3.50 at shop.com. Well!", ["Dr. No paid 3.50 at shop.com.", "Well!"]),
        ("He said... So it is", ["He said...", "So it is"]),
        ('"Go!" she said. "Why?"', ['"Go"!', "she said.", '"Why"?']),
        ("In the U.S.A. we live. We do", ["In the U.S.A. we live.", "We do"]),
        ("One\ntwo.", ["One two."]),
        ("Ph.D. students", ["Ph.D. students"]),
        (".", ["."]),
        ("a\0b\1c.", ["abc."]),
    ],
)
def test_sentences_end_where_the_published_rules_end_them(text, parts):
    assert sentences(text) == parts


HOSTILE = ["(" * 100_000, '"' * 100_000, "\n" * 100_000, ". " * 50_000, "Question 1. " * 9_000,
           "a" * 100_000, "* - " * 25_000, "A." * 50_000, "1," * 50_000, '"&' * 50_000]  # fmt: skip


@pytest.mark.long
@pytest.mark.parametrize("kind", CASES)
def test_no_text_takes_long_or_raises(kind):
    try:
        require_packages([kind])
    except (MissingPackage, GraderError) as error:
        pytest.skip(str(error))
    asked = instruction(kind, CASES[kind][0], KINDS)
    start = time.process_time()
    for text in HOSTILE:
        instructions_followed(text, [asked], kinds=KINDS)
    assert time.process_time() - start < 10


def test_arguments_that_are_missing_are_an_error():
    with pytest.raises(DataError, match="count:numbers needs N, a whole number, got None"):
        instruction("count:numbers", {}, KINDS)
    with pytest.raises(DataError, match="needs N, a whole number, got 0"):
        instruction("count:words_japanese", {"N": 0}, KINDS)
    with pytest.raises(DataError, match="no kind of instruction 'punctuation:no_comma'"):
        instruction("punctuation:no_comma", {}, KINDS)


ROW = {
    "key": "0",
    "prompt": "Name two seas. Use exactly 2 numbers. No spaces.",
    "instruction_id_list": ["count:numbers", "format:no_whitespace"],
    "kwargs": [{"N": 2.0, "word": None}, {"N": None}],
}


def test_a_success_follows_all_instructions_in_one_of_the_loose_versions(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text(json.dumps(ROW))
    env = gym.make("ludic/IFBench-v0", data=str(path))
    for reply, strict, loose in (("1,a2", 1, 1), ("Sure: it is\n1,a2", 0, 1), ("1, a2", 0, 0)):
        text, _ = env.reset()
        _, reward, *_, info = env.step(reply)
        assert (text, reward) == (ROW["prompt"], loose)
        assert (info["metric/prompt_strict"], info["metric/prompt_loose"]) == (strict, loose)
    assert info["rule"] == "not followed: format:no_whitespace"


def test_every_published_row_is_read():
    project = Path(__file__).parents[3]
    folder = Path(os.environ.get("LUDIC_DATA_DIR", project.parent / "shared" / "data"))
    path = folder / "ifbench" / "IFBench_test.jsonl.gz"
    if not path.is_file():
        pytest.skip(f"needs the original data in {path}; set LUDIC_DATA_DIR")
    rows = [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    pairs = [p for r in rows for p in zip(r["instruction_id_list"], r["kwargs"], strict=True)]
    made = [instruction(kind, arguments, KINDS) for kind, arguments in pairs]
    assert len(rows) == 300
    assert {one.kind for one in made} == KINDS.keys()
    assert all(isinstance(one, Instruction) for one in made)
