"""Scores of reference players: complete, and near those of the catalogue."""

import pytest

from envs_registry.catalog import CATALOG
from envs_registry.scores import CARDS
from ludic_gym.audit.scores import SIGMAS, error_of

IDS = [entry.id for entry in CATALOG]


def test_every_environment_has_a_card_and_no_other():
    assert list(CARDS) == IDS
    for env_id, card in CARDS.items():
        assert {"random", "oracle", "empty", "hack", "ludic-small"} <= card.scores.keys(), env_id
        assert all(0 <= wins <= count >= 20 for wins, count in card.scores.values()), env_id
        assert card.tokens.keys() <= card.scores.keys()
        # An episode that outgrew the context is no success.
        for model, failed in card.outgrown.items():
            wins, count = card.scores[model]
            assert 0 <= failed <= count - wins, env_id


@pytest.mark.parametrize("entry", CATALOG, ids=IDS)
def test_the_scores_are_those_of_the_catalogue(entry):
    stated = {"random": entry.random_success, "oracle": entry.oracle_success}
    for player, rate in stated.items():
        wins, count = CARDS[entry.id].scores[player]
        assert abs(wins / count - rate) <= SIGMAS * error_of(rate, count), player
    # Some success is chance where opponents may lose by themselves.
    for player in ("empty", "hack"):
        wins, count = CARDS[entry.id].scores[player]
        chance = max(0.5, entry.random_success + 0.3)
        assert wins / count <= chance + SIGMAS * error_of(chance, count), player
