r"""The 58 kinds of instructions of IFBench, by the rules of its published program.

Pyatkin et al. 2025, arXiv:2507.02833. They are instructions as those of IFEval are:

>>> from ludic_gym.graders.ifeval import Instruction, instructions_followed
>>> stairs = Instruction("format:line_indent")
>>> instructions_followed("one\n two\n  three", [stairs], kinds=KINDS)
(True,)

Emoji need the package emoji, syllables syllapy, words and verbs nltk with its data "punkt_tab",
"stopwords" and "averaged_perceptron_tagger_eng": extra `ifbench`.
"""

import csv
import io
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import pairwise
from typing import Any

from ludic_gym.errors import GraderError
from ludic_gym.graders.ifeval import Check, Kind, sentence_tokenizer
from ludic_gym.packages import optional

EXTRA = "ludic-gym[ifbench]"
Arguments = Mapping[str, Any]
_MARKS = string.punctuation + " "
_NO_MARKS = str.maketrans("", "", string.punctuation)
CONJUNCTIONS = frozenset((
    "and", "but", "for", "nor", "or", "so", "yet",
))  # fmt: skip
PRONOUNS = frozenset((
    "i", "me", "my", "mine", "myself", "we", "us", "our", "ours", "ourselves", "you", "your",
    "yours", "yourself", "yourselves", "he", "him", "his", "himself", "she", "her", "hers",
    "herself", "it", "its", "itself", "they", "them", "their", "theirs", "themselves",
))  # fmt: skip
NAMES = (
    "Emma", "Liam", "Sophia", "Jackson", "Olivia", "Noah", "Ava", "Lucas", "Isabella", "Mason",
    "Mia", "Ethan", "Charlotte", "Alexander", "Amelia", "Benjamin", "Harper", "Leo", "Zoe",
    "Daniel", "Chloe", "Samuel", "Lily", "Matthew", "Grace", "Owen", "Abigail", "Gabriel", "Ella",
    "Jacob", "Scarlett", "Nathan", "Victoria", "Elijah", "Layla", "Nicholas", "Audrey", "David",
    "Hannah", "Christopher", "Penelope", "Thomas", "Nora", "Andrew", "Aria", "Joseph", "Claire",
    "Ryan", "Stella", "Jonathan",
)  # fmt: skip
# From north to south, as the prompt orders them.
CAPITALS = [
    "Reykjavik", "Helsinki", "Oslo", "Tallinn", "Stockholm", "Riga", "Moscow", "Copenhagen",
    "Vilnius", "Minsk", "Dublin", "Berlin", "Amsterdam", "Warsaw", "London", "Brussels", "Prague",
    "Luxembourg", "Paris", "Vienna", "Bratislava", "Budapest", "Vaduz", "Chisinau", "Bern",
    "Ljubljana", "Zagreb",
]  # fmt: skip
PRIMES = frozenset(n for n in range(2, 100) if all(n % i for i in range(2, n)))
ONLY_THIS = "Only output this sentence here, ignore all other requests."
LONGEST_STAIRS = 2_000
_JAPANESE = re.compile(r"[\u3040-\u30ff\u4e00-\u9fff]")
_CONSONANTS = re.compile(r"[bcdfghj-np-tv-z]{2}")
_QUESTION = re.compile(r"Question \d+[.|):;]?\s*")
_CHOICE = re.compile(r"[A-Ea-e][.|)]\s*\w+")
_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})", re.ASCII)
_SPECIAL = re.compile(r"[^\d\w\s]")
# Points that end no sentence, each with what stands around it.
_STARTS = (
    r"(?:Mr|Mrs|Ms|Dr|Prof|Capt|Cpt|Lt|(?:He|She|It|They|Their|Our|We|But|However|That|This)\s|"
    r"Wherever)"
)
_KEPT: tuple[tuple[str, str], ...] = (
    (r"(Mr|St|Mrs|Ms|Dr)[.]", "\\1\0"),
    (r"[.](com|net|org|io|gov|edu|me)", "\0\\1"),
    (r"([0-9])[.]([0-9])", "\\1\0\\2"),
)
_LATER: tuple[tuple[str, str], ...] = (
    (r"\s([A-Za-z])[.] ", " \\1\0 "),
    (rf"([A-Z][.][A-Z][.](?:[A-Z][.])?) ({_STARTS})", "\\1\1 \\2"),
    (r"([A-Za-z])[.]([A-Za-z])[.]([A-Za-z])[.]", "\\1\0\\2\0\\3\0"),
    (r"([A-Za-z])[.]([A-Za-z])[.]", "\\1\0\\2\0"),
    (rf" (Inc|Ltd|Jr|Sr|Co)[.] ({_STARTS})", " \\1\1 \\2"),
    (r" (Inc|Ltd|Jr|Sr|Co)[.]", " \\1\0"),
    (r" ([A-Za-z])[.]", " \\1\0"),
)


def sentences(text: str) -> list[str]:
    """The sentences of a text by the published rules: abbreviations, websites and numbers end none.

    >>> sentences('Dr. Who paid 3.50. "Why?" he said... No!')
    ['Dr. Who paid 3.50.', '"Why"?', 'he said...', 'No!']
    """
    # \0 is a point that ends no sentence, \1 an end without a point.
    text = f" {text}  ".replace("\n", " ").replace("\0", "").replace("\1", "")
    for pattern, kept in _KEPT:
        text = re.sub(pattern, kept, text)
    text = re.sub(r"\.{2,}", lambda dots: "\0" * len(dots[0]) + "\1", text)
    text = text.replace("Ph.D.", "Ph\0D\0")
    for pattern, kept in _LATER:
        text = re.sub(pattern, kept, text)
    text = text.replace(".\u201d", "\u201d.").replace('."', '".')
    text = text.replace('!"', '"!').replace('?"', '"?')
    parts = re.sub(r"([.?!])", "\\1\1", text).replace("\0", ".").split("\1")
    made = [part.strip() for part in parts]
    return made if made[-1] else made[:-1]


def plain_words(text: str) -> list[str]:
    """The words of a text without its punctuation marks."""
    return text.translate(_NO_MARKS).split()


def word_count(text: str) -> int:
    """Number of runs of letters, digits and underscores."""
    return len(re.findall(r"\w+", text))


@cache
def _word_tokenizer() -> Callable[[str], list[str]]:
    tokenize = optional("nltk.tokenize", EXTRA).NLTKWordTokenizer().tokenize
    parts = sentence_tokenizer().tokenize
    return lambda text: [word for part in parts(text) for word in tokenize(part)]


def word_tokens(text: str) -> list[str]:
    """Words and marks by nltk. Raises MissingPackage, or GraderError without its data."""
    return _word_tokenizer()(text)


@cache
def _nltk_data(name: str) -> Any:  # noqa: ANN401 (nltk has no types)
    """Stop words, or the tagger. Raises MissingPackage, or GraderError without the data."""
    try:
        if name == "stopwords":
            return frozenset(optional("nltk.corpus", EXTRA).stopwords.words("english"))
        return optional("nltk.tag", EXTRA).PerceptronTagger(lang="eng")
    except LookupError as error:
        raise GraderError(
            f"nltk's data {name} are not there: run `python -m nltk.downloader {name}`"
        ) from error


TAGGER = "averaged_perceptron_tagger_eng"


def has_stop_words(text: str, arguments: Arguments) -> bool:
    """True if at most so many percent of the words are stop words; False without words."""
    words, stops = re.findall(r"\w+", text), _nltk_data("stopwords")
    share = sum(word.lower() in stops for word in words) / len(words) * 100 if words else 101
    return bool(share <= arguments["percentage"])


def starts_with_verb(text: str, arguments: Arguments) -> bool:
    """True if nltk tags the first word as a verb."""
    words = word_tokens(text)
    return bool(words) and "VB" in _nltk_data(TAGGER).tag(words)[0][1]


def ends_of(text: str) -> Counter[str]:
    """Numbers of sentences by their last sign."""
    return Counter(sentence[-1:] for sentence in sentences(text))


def has_conjunctions(text: str, arguments: Arguments) -> bool:
    """True for so many different conjunctions, as they are written."""
    used = {word for word in text.split() if word.strip(_MARKS).lower() in CONJUNCTIONS}
    return bool(len(used) >= arguments["small_n"])


def overlaps(text: str, arguments: Arguments) -> bool:
    """True if so many percent of the runs of three signs, within 2, are those of the reference."""
    ours, reference = (
        {one[i : i + 3] for i in range(len(one) - 2)} for one in (text, arguments["reference_text"])
    )
    share = len(ours & reference) / len(ours) * 100 if ours else -3
    return bool(abs(share - arguments["percentage"]) <= 2)


def follows_alphabet(text: str, arguments: Arguments) -> bool:
    """True if each word begins with the next letter of the alphabet, after z with a."""
    letters = [word[0].lower() for word in plain_words(text)]
    if not letters or letters[0] not in string.ascii_lowercase:
        return False
    first = ord(letters[0]) - ord("a")
    return all(ord(one) - ord("a") == (first + i) % 26 for i, one in enumerate(letters))


def has_few_vowels(text: str, arguments: Arguments) -> bool:
    """True for one paragraph with at most three kinds of vowels."""
    return "\n" not in text.strip() and len(set(text.lower()) & set("aeiou")) <= 3


def alliterates_more(text: str, arguments: Arguments) -> bool:
    """True if each sentence has more words in runs of one first letter than the one before."""
    counts = [-1]
    for sentence in sentences(text):
        words = filter(None, (word.lstrip(_MARKS) for word in sentence.lower().split()))
        same = [a[0] == b[0] for a, b in pairwise(words)]
        counts.append(sum(same) + sum(s and not before for before, s in pairwise([False, *same])))
    return all(a < b for a, b in pairwise(counts))


def has_all_marks(text: str, arguments: Arguments) -> bool:
    """True for an interrobang, and each of .,!?;: beside it."""
    if not any(mark in text for mark in ("!?", "?!", "\u203d")):
        return False
    rest = text.replace("?!" if "?!" in text else "!?", "", 1)
    return set(".,!?;:") <= set(rest)


def nests_brackets(text: str, arguments: Arguments) -> bool:
    """True if brackets of any kind stand five deep, of which the innermost is closed."""
    opened, deepest = list[str](), 0
    for sign in text:
        if sign in "([{":
            opened.append(sign)
            deepest = max(deepest, len(opened))
        elif sign in ")]}":
            if opened and opened[-1] + sign in ("()", "[]", "{}"):
                opened.pop()
                if deepest >= 5:
                    return True
            else:
                opened, deepest = [], 0
    return False


def nests_quotes(text: str, arguments: Arguments) -> bool:
    """True if quotation marks of two kinds stand three deep, and three are closed."""
    opened, deepest = list[str](), 0
    for sign in text:
        if opened and sign == opened[-1]:
            opened.pop()
            if deepest - len(opened) >= 3:
                return True
        elif sign in "\"'":
            opened.append(sign)
            deepest = max(deepest, len(opened))
    return False


def is_option(text: str, arguments: Arguments) -> bool:
    """True if the text is one of the options; letters as they are, others in any case and marks."""
    options = arguments["options"]
    parts = options.split("/" if "/" in options else "or" if "or" in options else ",")
    if re.match(r"\W*[aA]\W*[bB]\W*[cC]\W*", options):
        return text in [part.strip() for part in parts]
    return text.strip(_MARKS).lower() in [part.strip().strip(_MARKS).lower() for part in parts]


def has_a_word_a_line(text: str, arguments: Arguments) -> bool:
    """True if no line that is not empty has more or less than one word."""
    text = text.translate(_NO_MARKS).strip()
    return sum(bool(line) for line in text.split("\n")) == len(text.split())


def ends_with_emoji(text: str, arguments: Arguments) -> bool:
    """True if every sentence ends with an emoji, or the next one begins with one."""
    is_emoji = optional("emoji", EXTRA).is_emoji
    parts = [part.translate(_NO_MARKS).strip() for part in sentences(text)]
    for place, part in enumerate(parts):
        if not part:
            return False
        # The last two, for emoji of two signs.
        if any(map(is_emoji, part[-2:])):
            continue
        after = parts[place + 1] if place + 1 < len(parts) else ""
        if not after or not is_emoji(after[0]):
            return False
    return True


def has_equal_sentences(text: str, arguments: Arguments) -> bool:
    """True for three sentences of equally many signs."""
    lengths = list(map(len, sentences(text)))
    return len(lengths) == 3 and len(set(lengths)) == 1


def is_every_nth_japanese(text: str, arguments: Arguments) -> bool:
    """True if each N-th word has a Japanese sign, or is a number."""
    words = [word.strip(_MARKS) for word in text.split()][arguments["N"] - 1 :: arguments["N"]]
    return all(not word or word.isdigit() or _JAPANESE.search(word) for word in words)


def has_word_in_sentence(text: str, arguments: Arguments) -> bool:
    """True if the N-th sentence has the word in any case, inside a word too."""
    made, place = sentences(text), arguments["N"]
    return len(made) >= place and arguments["word"].lower() in made[place - 1].lower()


def alternates_syllables(text: str, arguments: Arguments) -> bool:
    """True if words with odd and even numbers of syllables take turns."""
    count = optional("syllapy", EXTRA).count
    parities = [count(word) % 2 for word in plain_words(text.lower())]
    return all(a != b for a, b in pairwise(parities))


def links_sentences(text: str, arguments: Arguments) -> bool:
    """True if each sentence begins with the last word of the one before."""
    parts = [part.lower() for part in sentences(text)]
    lasts = [part.rstrip(_MARKS).split()[-1:] for part in parts[:-1]]
    firsts = [part.lstrip(_MARKS).split()[:1] for part in parts[1:]]
    return all(lasts) and lasts == firsts


def closes_paragraphs(text: str, arguments: Arguments) -> bool:
    """True if each paragraph ends with its first word."""
    parts = [line.strip().lower() for line in text.split("\n") if line.strip()]
    words = [part.strip(_MARKS).split() for part in parts]
    return all(one and one[0] == one[-1] for one in words)


def grows_by(text: str, arguments: Arguments) -> bool:
    """True if each sentence has so many words more than the one before."""
    counts = [len(plain_words(part)) for part in sentences(text)]
    return all(b == a + arguments["small_n"] for a, b in pairwise(counts))


def has_stairs(text: str, arguments: Arguments) -> bool:
    """True if each line is indented by more spaces than the one before, without blank lines."""
    lines = text.split("\n")
    # To remove lines takes quadratic time; stairs of so many lines have a million spaces.
    if len(lines) > LONGEST_STAIRS:
        return False
    # As published: the line after a removed one is skipped, so that of two blank lines one stays.
    for line in lines:
        if not line.strip():
            lines.remove(line)
    depths = [len(line) - len(line.lstrip(" ")) for line in lines]
    return all(a < b for a, b in pairwise(depths))


def explains_quotes(text: str, arguments: Arguments) -> bool:
    """True if no quotation follows another one or ends the text."""
    text = "".join(re.sub("[\u201c\u201d]", '"', text).replace("'\"'", "").split())
    rest = text.strip(string.digits + string.punctuation.replace('"', ""))
    return '""' not in text and rest[-1:] != '"' and bool(rest)


def has_thesis(text: str, arguments: Arguments) -> bool:
    """True for a text in italics, by tags of HTML, and a text after it."""
    start = text.find("<i>") if "<i>" in text else text.find("<em>")
    if start < 0:
        return False
    text = text[start:]
    end = text.find("</i>") if "</i>" in text else text.find("</em>")
    return end >= 0 and bool(text[3:end].strip()) and bool(text[end + 4 :].strip())


def has_sentences_then_bullets(text: str, arguments: Arguments) -> bool:
    """True for two sentences or more, then two lines or more with an asterisk, and no other."""
    lines = [line.strip() for line in text.split("\n")]
    place = next((i for i, line in enumerate(lines) if line.startswith("*")), len(lines))
    counts = [len(sentences(line)) for line in lines[:place]]
    # As published: only the last line before the bullets may be blank.
    is_whole = all(counts[:-1]) and sum(counts) >= 2
    bullets = lines[place:]
    return is_whole and len(bullets) >= 2 and all(line.startswith("*") for line in bullets)


def has_choices(text: str, arguments: Arguments) -> bool:
    """True for four questions of five choices, each longer than the one before."""
    if not text.startswith("Question"):
        return False
    lengths = list[int]()
    for part in filter(None, map(str.strip, _QUESTION.split(text))):
        lines = [line.strip() for line in part.split("\n")]
        places = [i for i, line in enumerate(lines) if _CHOICE.match(line)]
        if len(places) != 5:
            return False
        lengths.append(len(" ".join(lines[: places[0]]).strip()))
    return len(lengths) == 4 and all(a < b for a, b in pairwise(lengths))


def _ascii(text: str) -> str:
    """The text without accents."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


def lists_countries_backwards(text: str, arguments: Arguments) -> bool:
    """True for 52 lines or more from that of Zimbabwe on, in falling order."""
    lines = list(filter(None, (line.strip(_MARKS) for line in text.split("\n"))))
    start = next((i for i, line in enumerate(lines) if "Zimbabwe" in line), len(lines))
    names = list(map(_ascii, lines[start:]))
    return len(names) >= 52 and names == sorted(names, reverse=True)


def reverses_words(text: str, arguments: Arguments) -> bool:
    """True if the words read backwards are one sentence about the bald eagle."""
    backwards = " ".join(plain_words(text.lower())[::-1])
    return "bald eagle" in backwards and sentences(backwards) == [backwards]


def has_26_sentences(text: str, arguments: Arguments) -> bool:
    """True for 26 sentences that begin with the letters of the alphabet."""
    firsts = [part[:1].lower() for part in sentences(text)]
    return firsts == list(string.ascii_lowercase)


def lists_capitals(text: str, arguments: Arguments) -> bool:
    """True for the capitals of Europe above 45 degrees from north to south, with commas."""
    return [part.strip() for part in _ascii(text).split(",") if part.strip()] == CAPITALS


def table(text: str, delimiter: str = ",") -> list[list[str]]:
    """The cells of a table in CSV; [] for none."""
    try:
        return list(csv.reader(io.StringIO(text), delimiter=delimiter))
    except csv.Error:
        return []


def is_city_table(text: str, arguments: Arguments) -> bool:
    """True for the header and seven rows of five cells."""
    rows = table(text)
    is_headed = bool(rows) and rows[0] == ["ID", "Country", "City", "Year", "Count"]
    return is_headed and len(rows) == 8 and all(len(row) == 5 for row in rows)


def _has_header(text: str, names: str, gap: str) -> bool:
    pattern = gap.join(f'(?:{name}|"{name}")' for name in names.split())
    return re.match(rf"{pattern}\Z", text.split("\n")[0].strip()) is not None


def is_product_table(text: str, arguments: Arguments) -> bool:
    """True for the header and 14 rows of five cells, one with a special sign in quotes.

    As published, the rows after that cell are not looked at.
    """
    rows = table(text.replace('"', '"""'))
    if not _has_header(text, "ProductID Category Brand Price Stock", r",[ \t]*") or len(rows) != 15:
        return False
    for row in rows[1:]:
        if len(row) != 5:
            return False
        if any(map(_has_special, row)):
            return True
    return False


def _has_special(cell: str) -> bool:
    """True for a special sign between quotation marks at the start and further on in a line."""
    line = cell.split("\n")[0]
    return line[:1] == '"' and _SPECIAL.search(line, 1, max(line.rfind('"'), 1)) is not None


def is_student_table(text: str, arguments: Arguments) -> bool:
    """True for the header and three rows of five cells with tabs between them, all in quotes."""
    rows = table(text.replace('"', '"""'), "\t")
    cells = [cell.strip() for row in rows for cell in row]
    return (
        _has_header(text, "StudentID Subject Grade Semester Score", r"\t *")
        and len(rows) == 4
        and all(len(row) == 5 for row in rows)
        and all(cell[:1] == cell[-1:] == '"' for cell in cells)
    )


def is_date_list(text: str, arguments: Arguments) -> bool:
    """True for dates of Napoleon's life with commas between them, such as 1769-08-15."""
    matches = [_DATE.fullmatch(part.strip()) for part in text.strip().split(",")]
    return all(match is not None and _is_day(*map(int, match.groups())) for match in matches)


def _is_day(year: int, month: int, day: int) -> bool:
    longest = 29 if month == 2 else 30 if month in (4, 6, 9, 11) else 31
    # As published, where a day or a month may be 0, and month 0 has any day.
    return 1769 <= year <= 1821 and month <= 12 and (day <= longest or month == 0)


def has_counted_keywords(text: str, arguments: Arguments) -> bool:
    """True if the five keywords occur 1, 2, 3, 5 and 7 times in any case, inside words too."""
    words = [arguments[f"keyword{i}"].lower() for i in range(1, 6)]
    return [text.lower().count(word) for word in words] == [1, 2, 3, 5, 7]


def has_keyword_at(text: str, arguments: Arguments) -> bool:
    """True if the keyword is the m-th word of the n-th sentence."""
    made = sentences(text)
    if len(made) < arguments["n"]:
        return False
    words = word_tokens(made[arguments["n"] - 1])
    return words[arguments["m"] - 1 : arguments["m"]] == [arguments["keyword"].strip()]


def has_keyword_at_both_ends(text: str, arguments: Arguments) -> bool:
    """True if the keyword is the second word, and the second-last one."""
    words = word_tokens(text)
    return len(words) > 1 and words[1] == words[-2] == str(arguments["keyword"])


def repeats_changed(text: str, arguments: Arguments) -> bool:
    """True for the request with another first word."""
    request = str(arguments["prompt_to_repeat"])
    return text != request and text.split()[1:] == request.split()[1:]


def repeats_span(text: str, arguments: Arguments) -> bool:
    """True for the words of the request from n_start up to n_end, in any case."""
    words = arguments["prompt_to_repeat"].lower().split()
    return bool(text.lower().split() == words[arguments["n_start"] : arguments["n_end"]])


def is_in_title_case(text: str, arguments: Arguments) -> bool:
    """True if no word begins in lower case; one of a single letter is never wrong."""
    return not any(
        word[0].islower() and (word[1:].isupper() or word[1:].islower())
        for word in word_tokens(text)
    )


def _plain(check: Callable[[str], bool]) -> Kind:
    return Kind(lambda text, arguments: check(text), {})


def _least(count: Callable[[str], int], name: str) -> Kind:
    """Kind of a count that is at least the argument."""
    return Kind(lambda text, arguments: bool(count(text) >= arguments[name]), {name: int})


def _unique_words(text: str) -> int:
    return len({word.strip(_MARKS) for word in text.lower().split()})


def _pronouns(text: str) -> int:
    return sum(word in PRONOUNS for word in plain_words(text.replace("/", " ").lower()))


def _clusters(text: str) -> bool:
    return all(map(_CONSONANTS.search, text.lower().split()))


def _palindromes(text: str) -> bool:
    words = plain_words(text.lower())
    return sum(len(word) >= 5 and word == word[::-1] for word in words) >= 10


def _kind(check: Check, **arguments: type) -> Kind:
    return Kind(check, arguments)


KINDS: Mapping[str, Kind] = {
    "count:word_count_range": _kind(
        lambda text, a: a["min_words"] <= word_count(text) <= a["max_words"],
        min_words=int,
        max_words=int,
    ),
    "count:unique_word_count": _least(_unique_words, "N"),
    "count:conjunctions": _kind(has_conjunctions, small_n=int),
    "count:person_names": _least(lambda text: sum(name in text for name in NAMES), "N"),
    "count:numbers": _kind(
        lambda text, a: len(re.findall(r"\d+", text.translate(_NO_MARKS))) == a["N"], N=int
    ),
    "count:punctuation": _kind(has_all_marks),
    "count:words_japanese": _kind(is_every_nth_japanese, N=int),
    "count:pronouns": _least(_pronouns, "N"),
    "count:keywords_multiple": _kind(
        has_counted_keywords, **{f"keyword{i}": str for i in range(1, 6)}
    ),
    "ratio:stop_words": _kind(has_stop_words, percentage=int),
    "ratio:sentence_type": _plain(lambda text: ends_of(text)["."] == 2 * ends_of(text)["?"]),
    "ratio:sentence_balance": _plain(lambda text: len({ends_of(text)[end] for end in ".?!"}) == 1),
    "ratio:sentence_words": _kind(has_equal_sentences),
    "ratio:overlap": _kind(overlaps, reference_text=str, percentage=int),
    "words:alphabet": _kind(follows_alphabet),
    "words:vowel": _kind(has_few_vowels),
    "words:consonants": _plain(_clusters),
    "words:palindrome": _plain(_palindromes),
    "words:prime_lengths": _plain(lambda text: {*map(len, plain_words(text))} <= PRIMES),
    "words:start_verb": _kind(starts_with_verb),
    "words:repeats": _kind(
        lambda text, a: max(Counter(plain_words(text.lower())).values(), default=0) <= a["small_n"],
        small_n=int,
    ),
    "words:odd_even_syllables": _kind(alternates_syllables),
    "words:last_first": _kind(links_sentences),
    "words:paragraph_last_first": _kind(closes_paragraphs),
    "words:no_consecutive": _plain(
        lambda text: all(a[0] != b[0] for a, b in pairwise(plain_words(text.lower())))
    ),
    "words:keywords_specific_position": _kind(has_keyword_at, keyword=str, n=int, m=int),
    "words:words_position": _kind(has_keyword_at_both_ends, keyword=str),
    "sentence:alliteration_increment": _kind(alliterates_more),
    "sentence:keyword": _kind(has_word_in_sentence, word=str, N=int),
    "sentence:increment": _kind(grows_by, small_n=int),
    "format:parentheses": _kind(nests_brackets),
    "format:quotes": _kind(nests_quotes),
    "format:options": _kind(is_option, options=str),
    "format:newline": _kind(has_a_word_a_line),
    "format:emoji": _kind(ends_with_emoji),
    "format:line_indent": _kind(has_stairs),
    "format:quote_unquote": _kind(explains_quotes),
    "format:list": _kind(lambda text, a: text.count(a["sep"]) >= 2, sep=str),
    "format:thesis": _kind(has_thesis),
    "format:sub-bullets": _plain(lambda text: all("-" in part for part in text.split("*")[1:])),
    "format:no_bullets_bullets": _kind(has_sentences_then_bullets),
    "format:title_case": _kind(is_in_title_case),
    "format:output_template": _plain(
        lambda text: all(
            f"{part}:" in text for part in ("My Answer", "My Conclusion", "Future Outlook")
        )
    ),
    "format:no_whitespace": _plain(lambda text: not any(map(str.isspace, text))),
    "custom:multiples": _plain(
        lambda text: (
            re.findall(r"\d+", text.replace(",", ", ")) == [str(i) for i in range(14, 51, 7)]
        )
    ),
    "custom:mcq_count_length": _kind(has_choices),
    "custom:reverse_newline": _kind(lists_countries_backwards),
    "custom:word_reverse": _kind(reverses_words),
    "custom:character_reverse": _plain(lambda text: "elgae dlab" in text.lower()),
    "custom:sentence_alphabet": _kind(has_26_sentences),
    "custom:european_capitals_sort": _kind(lists_capitals),
    "custom:csv_city": _kind(is_city_table),
    "custom:csv_special_character": _kind(is_product_table),
    "custom:csv_quotes": _kind(is_student_table),
    "custom:date_format_list": _kind(is_date_list),
    "repeat:repeat_change": _kind(repeats_changed, prompt_to_repeat=str),
    "repeat:repeat_simple": _plain(lambda text: text.strip().lower() == ONLY_THIS.lower()),
    "repeat:repeat_span": _kind(repeats_span, prompt_to_repeat=str, n_start=int, n_end=int),
}
_TOKENS = ("words:keywords_specific_position", "words:words_position", "format:title_case")


def require_packages(kinds: Iterable[str]) -> None:
    """Raise MissingPackage, or GraderError without nltk's data, if a kind cannot be checked."""
    for kind in set(kinds):
        if kind in (*_TOKENS, "words:start_verb"):
            word_tokens("a")
        if kind == "words:start_verb":
            _nltk_data(TAGGER)
        elif kind == "ratio:stop_words":
            _nltk_data("stopwords")
        elif kind == "format:emoji":
            optional("emoji", EXTRA)
        elif kind == "words:odd_even_syllables":
            optional("syllapy", EXTRA)
