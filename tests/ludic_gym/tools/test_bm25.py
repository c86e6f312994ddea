"""The BM25 index, by numbers worked out by hand and by a plain second implementation."""

import math
import random
from collections import Counter

import pytest

from ludic_gym.errors import ConfigError
from ludic_gym.tools.search import Index

TEXTS = ["red fox", "blue fox fox", "owl", "cat", "dog", "hen", "cow", "pig"]


def plain_scores(texts, query, k1=1.5, b=0.75):
    """Lucene's variant of the formula, text by text."""
    counts = [Counter(text.split()) for text in texts]
    mean = sum(c.total() for c in counts) / len(texts)
    scores = []
    for count in counts:
        score = 0.0
        for word in query.split():
            holders = sum(word in other for other in counts)
            idf = math.log(1 + (len(texts) - holders + 0.5) / (holders + 0.5))
            norm = k1 * (1 - b + b * count.total() / mean)
            score += idf * count[word] / (count[word] + norm)
        scores.append(score)
    return scores


def test_an_order_by_hand():
    # Two of the words, the shortest text of a rare one, and the word that two texts have.
    assert Index(TEXTS).best("fox owl red", 4) == [0, 2, 1]
    # Twice in three words is more than once in two.
    assert Index(TEXTS).best("the fox", 4) == [1, 0]


def test_equal_scores_keep_the_order_and_unknown_words_find_nothing():
    assert Index(TEXTS).best("pig cat owl", 2) == [2, 3]
    assert Index(TEXTS).best("zebra", 2) == Index(TEXTS).best("", 2) == []
    assert Index(["the", "of", ""]).best("the fox", 2) == []


def test_the_order_is_that_of_a_plain_implementation():
    rng = random.Random(0)
    letters = [letter * 2 for letter in "abcdefghijklmnopqrstuvwxyz"]
    texts = [" ".join(rng.choices(letters, k=rng.randint(1, 9))) for _ in range(60)]
    index = Index(texts)
    for _ in range(50):
        query = " ".join(rng.sample(letters, 3))
        scores = plain_scores(texts, query)
        found = index.best(query, 10)
        assert len(found) == min(10, sum(score > 0 for score in scores))
        best = sorted(scores, reverse=True)[: len(found)]
        assert [scores[i] for i in found] == pytest.approx(best)


def test_no_texts_are_refused():
    with pytest.raises(ConfigError, match="no texts"):
        Index([])
