"""Scores of reference players: complete, near the catalogue, and reproduced for cheap ones."""

import asyncio
from dataclasses import replace

import cards
import pytest

import ludic_gym as lg
from envs_registry.catalog import CATALOG
from envs_registry.scores import CARDS
from ludic_gym.audit.scores import SIGMAS, error_of

IDS = [entry.id for entry in CATALOG]
CHEAP = ["ludic/TicTacToe-v0", "ludic/Arithmetic-v0", "ludic/GuessTheNumber-v0"]


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


@pytest.mark.parametrize("env_id", CHEAP)
def test_the_program_finds_the_scores_again(env_id):
    card = CARDS[env_id]
    found = cards.reference(env_id, card.scores["random"][1])
    assert found.scores == {player: card.scores[player] for player in found.scores}
    assert found.characters == card.characters


class Limited(lg.ScriptedClient):
    """A client that guesses the same letter, of a model with so many positions."""

    def __init__(self, positions):
        super().__init__(lambda messages, sampling: "e")
        self.positions = positions

    async def complete(self, messages, sampling, tools=()):
        return await super().complete(messages, replace(sampling, max_length=self.positions), tools)


# The first prompt does not fit; a later one does not; all of them do.
@pytest.mark.parametrize(("positions", "outgrown"), [(40, 3), (400, 3), (40_000, 0)])
def test_episodes_that_do_not_fit_into_the_context_are_counted(positions, outgrown):
    def make_policy(env):
        return lg.ChatPolicy(Limited(positions))

    found = asyncio.run(cards.of_model(make_policy, "ludic/Hangman-v0", 3))
    assert found.score == (0, 3)
    assert found.outgrown == outgrown
    assert (found.tokens is None) == (positions == 40)
