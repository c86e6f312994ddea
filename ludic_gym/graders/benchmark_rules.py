"""Answers and scores by the rules of published benchmarks.

Replies are without their thought; see `after_thought`. Scores are exact match and F1, each from 0
to 1.
"""

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

_ANSWER_IS = re.compile(r"answer is \(?([A-J])\)?")
# Ahead, so that of "Answer:Answer:B" both are seen.
_ANSWER_COLON = re.compile(r"[aA]nswer:(?=\s*([A-J]))")
_LONE_LETTER = re.compile(r"\b[A-J]\b")
_GPQA = tuple(
    re.compile(pattern)
    for pattern in (
        r"answer is \((.)\)",
        r"Answer: \((.)\)",
        r"answer: \((.)\)",
        r"answer \((.)\)",
        r"\((.)\)",
    )
)
_OPTION = re.compile(r"\([A-Z]\)")
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)
_CLOSED = ("yes", "no", "noanswer")
# A reply with more parts is cut: an assignment takes cubic time.
MOST_PARTS = 50


def mmlu_pro_letter(reply: str) -> str | None:
    """The letter of a reply by the rule of MMLU-Pro (Wang et al. 2024, arXiv:2406.01574).

    >>> mmlu_pro_letter("So the answer is (C)."), mmlu_pro_letter("Answer: D"), mmlu_pro_letter("x")
    ('C', 'D', None)
    """
    if match := _ANSWER_IS.search(reply):
        return match[1]
    # The published ".*[aA]nswer:" takes the last of the first line that has one, but in quadratic
    # time.
    if matches := list(_ANSWER_COLON.finditer(reply)):
        end = reply.find("\n", matches[0].start())
        same_line = [match for match in matches if end < 0 or match.start() < end]
        return same_line[-1][1]
    letters = _LONE_LETTER.findall(reply)
    return letters[-1] if letters else None


def gpqa_letter(reply: str, letters: str = "ABCD") -> str | None:
    """The letter of a reply by the rule of GPQA (Rein et al. 2023, arXiv:2311.12022).

    Each pattern counts by its first match, if that is one of the letters.

    >>> gpqa_letter("(A) is wrong. The correct answer is (B)."), gpqa_letter("B")
    ('B', None)
    """
    for pattern in _GPQA:
        match = pattern.search(reply)
        if match and match[1] in letters:
            return match[1]
    return None


def bbh_answer(reply: str, truth: str) -> str | None:
    """The answer of a reply to BIG-Bench Hard (Suzgun et al. 2022, arXiv:2210.09261).

    It is the rest of the line after the last "answer is" without a full stop, or the last line of a
    reply without these words; for a truth such as "(A)", the first letter in parentheses there.

    >>> bbh_answer("So the answer is valid.", "valid"), bbh_answer("The answer is (B) red", "(A)")
    ('valid', '(B)')
    """
    _, marked, rest = reply.rpartition("answer is")
    lines = rest.strip().splitlines()
    if not lines:
        return None
    answer = lines[0 if marked else -1].strip().removesuffix(".").strip()
    if _OPTION.fullmatch(truth):
        match = _OPTION.search(answer)
        return match[0] if match else answer or None
    return answer or None


def drop_scores(parts: Sequence[str], answers: Sequence[Sequence[str]]) -> tuple[float, float]:
    """Exact match and F1 of DROP (Dua et al. 2019, arXiv:1903.00161), the best of all annotators.

    parts: the parts of the answer. answers: the parts of each annotator's answer; one whose first
    part is blank is left out.
    F1 is the mean over parts in the best assignment, rounded to two digits as there.

    >>> drop_scores(["4 yards"], [["4"]]), drop_scores(["the Bears", "Packers"], [["Bears"]])
    ((0.0, 0.67), (0.0, 0.5))
    """
    predicted = [_drop_normalised(part) for part in parts[:MOST_PARTS]]
    pairs = [
        _drop_pair(predicted, [_drop_normalised(part) for part in answer])
        for answer in answers
        if answer[0].strip()
    ]
    return max((em for em, _ in pairs), default=0.0), max((f1 for _, f1 in pairs), default=0.0)


def _drop_pair(predicted: list[str], right: list[str]) -> tuple[float, float]:
    """Exact match and F1 with one annotator's answer, both normalised."""
    # Parts have no order. By their number too, or one that is given twice would count once.
    exact = set(predicted) == set(right) and len(predicted) == len(right)
    bags = [set(part.split()) for part in right], [set(part.split()) for part in predicted]
    scores = np.array([[_bag_f1(theirs, ours) for theirs in bags[1]] for ours in bags[0]])
    total = best_assignment(scores)
    return float(exact), round(total / max(scores.shape), 2)


def _bag_f1(predicted: set[str], right: set[str]) -> float:
    """F1 of two sets of words; 0 if the right one has numbers and the given one none of them."""
    numbers = {word for word in right if _is_number(word)}
    if numbers and not numbers & predicted:
        return 0.0
    common = len(predicted & right)
    # Of no words, none is wrong and none is missing: so the script of the paper has it.
    precision = common / len(predicted) if predicted else 1.0
    recall = common / len(right) if right else 1.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


def best_assignment(scores: np.ndarray) -> float:
    """The largest sum of scores [R, C] with at most one of each row and column, none negative.

    The Hungarian algorithm with potentials (Kuhn 1955), in cubic time.

    >>> best_assignment(np.array([[0.9, 0.8], [0.8, 0.1]]))
    1.6
    """
    cost = -scores if scores.shape[0] <= scores.shape[1] else -scores.T
    rows, columns = cost.shape
    # Row and column 0 stand for "not assigned".
    row_price, column_price = np.zeros(rows + 1), np.zeros(columns + 1)
    row_of = np.zeros(columns + 1, dtype=int)
    for row in range(1, rows + 1):
        row_of[0], column = row, 0
        least = np.full(columns + 1, np.inf)
        before = np.zeros(columns + 1, dtype=int)
        done = np.zeros(columns + 1, dtype=bool)
        # Dijkstra's search for a free column: prices keep costs of earlier rows at 0 or more.
        while row_of[column]:
            done[column] = True
            reduced = cost[row_of[column] - 1] - row_price[row_of[column]] - column_price[1:]
            better = ~done[1:] & (reduced < least[1:])
            least[1:][better] = reduced[better]
            before[1:][better] = column
            following = int(np.argmin(np.where(done, np.inf, least)))
            step = least[following]
            row_price[row_of[done]] += step
            column_price[done] -= step
            least[~done] -= step
            column = following
        # Each row on the way back moves to the next column of the path, which frees its own.
        while column:
            row_of[column] = row_of[before[column]]
            column = int(before[column])
    return float(sum(-cost[row_of[j] - 1, j - 1] for j in range(1, columns + 1) if row_of[j]))


def _drop_normalised(text: str) -> str:
    """Words in lower case, split at blanks and hyphens, without articles and punctuation."""
    words: list[str] = []
    for word in re.split(" |-", text.lower()):
        if not _is_number(word):
            word = word.translate(_PUNCTUATION)
        # Without punctuation it may have become a number: "1,000" has.
        if _is_number(word):
            word = str(float(word))
        words += _ARTICLES.sub(" ", word).split()
    return " ".join(words)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def hotpot_scores(answer: str, truth: str) -> tuple[float, float]:
    """Exact match and F1 of an answer of HotpotQA (Yang et al. 2018, arXiv:1809.09600).

    >>> hotpot_scores("The Beatles!", "Beatles"), hotpot_scores("a big red dog", "red dog")
    ((1.0, 1.0), (0.0, 0.8))
    >>> hotpot_scores("yes it is", "yes")
    (0.0, 0.0)
    """
    predicted, right = squad_normalised(answer), squad_normalised(truth)
    exact = float(predicted == right)
    if predicted != right and (predicted in _CLOSED or right in _CLOSED):
        return exact, 0.0
    ours, theirs = predicted.split(), right.split()
    common = (Counter(ours) & Counter(theirs)).total()
    return exact, 2 * common / (len(ours) + len(theirs)) if common else 0.0


def squad_normalised(text: str) -> str:
    """The words in lower case, without ASCII punctuation and articles, one blank between them."""
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())
