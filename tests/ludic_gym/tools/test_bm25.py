"""The BM25 index, by numbers worked out by hand and by a plain second implementation."""

import math
import random
from collections import Counter

import pytest

from ludic_gym.errors import ConfigError
from ludic_gym.tools.bm25 import Index, words_of

TEXTS = ["red fox", "blue fox fox", "owl", "cat", "dog", "hen", "cow", "pig"]


def plain_scores(texts, query, k1=1.2, b=0.75):
    """The formula of the paper, text by text."""
    counts = [Counter(words_of(text)) for text in texts]
    mean = sum(c.total() for c in counts) / len(texts)
    scores = []
    for count in counts:
        score = 0.0
        for word in dict.fromkeys(words_of(query)):
            holders = sum(word in other for other in counts)
            if holders >= len(texts) / 4 and len(texts) >= 8:
                continue
            idf = math.log(1 + (len(texts) - holders + 0.5) / (holders + 0.5))
            norm = k1 * (1 - b + b * count.total() / mean)
            score += idf * count[word] * (k1 + 1) / (count[word] + norm)
        scores.append(score)
    return scores


def test_scores_by_hand():
    # 11 words in 8 texts; "red" is in one of them: idf ln(1 + 7.5/1.5) = ln 6. A text of 2 words
    # has the norm 1.2 (0.25 + 0.75 * 2 / 1.375) = 1.60909, so the score is ln 6 * 2.2 / 2.60909.
    index = Index(TEXTS)
    term = index._terms["red"]
    weight = index._weights[index._ends[term]]
    assert weight == pytest.approx(math.log(6) * 2.2 / 2.60909, rel=1e-5)
    assert index.best("red", 3) == [0]


def test_frequent_words_are_not_searched_for():
    # "fox" is in a quarter of the texts.
    assert Index(TEXTS).best("fox", 3) == []
    assert Index(TEXTS).best("the blue fox", 3) == [1]


def test_equal_scores_keep_the_order_and_unknown_words_find_nothing():
    assert Index(TEXTS).best("pig cat owl", 2) == [2, 3]
    assert Index(TEXTS).best("zebra", 2) == Index(TEXTS).best("", 2) == []


def test_the_order_is_that_of_a_plain_implementation():
    rng = random.Random(0)
    texts = [
        " ".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(1, 9))) for _ in range(60)
    ]
    index = Index(texts)
    for _ in range(50):
        query = " ".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=3))
        scores = plain_scores(texts, query)
        found = index.best(query, 10)
        assert len(found) == min(10, sum(score > 0 for score in scores))
        best = sorted(scores, reverse=True)[: len(found)]
        assert [scores[i] for i in found] == pytest.approx(best)


def test_no_texts_are_refused():
    with pytest.raises(ConfigError, match="no texts"):
        Index([])
