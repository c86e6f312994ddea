"""Werewolf: hand-worked days and nights, readers, hidden roles, strengths of scripted players."""

from itertools import permutations

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.games.village import (
    LAST_DAY,
    ROLES,
    deal,
    legal_actions,
    observation,
    play,
    read,
    refuse,
    returns,
    verdict,
)
from ludic_gym.envs.games.werewolf import (
    at_random,
    best_actions,
    by_claims,
    by_evidence,
    claims_in,
    suspicions,
    werewolf,
)

ID = "ludic/Werewolf-v0"
NAMES = ("Ann", "Ben", "Cleo", "Dora", "Emil", "Finn", "Gus")
# Ann and Ben are werewolves, Cleo the seer, Dora the doctor; Gus speaks first on day 1.
START = deal(NAMES, ROLES[7], 5)
STRATEGIES = (at_random, by_claims, by_evidence)


def after(state, *actions):
    for action in actions:
        state = play(state, action)
    return state


def voted(state, *names):
    """The state after silent talks and these votes, in the order of the living from the first."""
    while state.phase == "talk":
        state = play(state, "")
    return after(state, *(f"vote {name}" for name in names))


DAY_1 = after(START, "see Ann")
# Gus, Ann, Ben, Cleo, Dora, Emil and Finn vote: four for Emil.
NIGHT_1 = voted(DAY_1, "Emil", "Emil", "Emil", "Ann", "Ann", "Ann", "Emil")


def test_the_seer_alone_learns_a_side_in_the_first_night():
    assert (START.mover, legal_actions(START)[:2]) == (2, ("see Ann", "see Ben"))
    learnt = "You have learnt: Ann is a werewolf."
    assert [learnt in observation(DAY_1, seat) for seat in range(7)] == [False] * 2 + [True] + [
        False
    ] * 4
    assert (DAY_1.phase, DAY_1.mover) == ("talk", 6)


def test_the_player_with_the_most_votes_is_hanged_and_the_role_is_public():
    assert 4 not in NIGHT_1.living
    assert "The village hanged Emil: Emil was a villager." in observation(NIGHT_1, 6)
    assert "Dead players: Emil (villager)." in observation(NIGHT_1, 6)


def test_votes_are_hidden_until_all_have_voted():
    state = DAY_1
    while state.phase == "talk":
        state = play(state, "")
    before = observation(state, 0)
    assert "Vote for the player" not in before
    assert play(state, "vote Emil").mover == 0
    assert "voted for" not in observation(play(state, "vote Emil"), 0)


def test_a_tie_hangs_no_one():
    state = voted(DAY_1, "Ann", "Gus", "Gus", "Ann", "Ann", "Gus", "Ben")
    assert len(state.living) == 7
    assert "The vote was a tie, so no one was hanged." in observation(state, 3)


def test_the_last_werewolf_decides_on_the_victim():
    # Both werewolves act, then the seer and the doctor; the doctor protects the first name only.
    state = after(NIGHT_1, "kill Cleo", "kill Gus", "see Finn", "protect Cleo")
    assert state.living == (0, 1, 2, 3, 5)
    assert "the werewolves killed Gus: Gus was a villager." in observation(state, 5)
    assert "Ann named Cleo as the victim." in observation(after(NIGHT_1, "kill Cleo"), 1)


def test_the_doctor_saves_the_victim_and_cannot_protect_it_again():
    state = after(NIGHT_1, "kill Cleo", "kill Gus", "see Finn", "protect Gus")
    assert state.living == (0, 1, 2, 3, 5, 6)
    assert "In the night, no one died." in observation(state, 5)
    tie = voted(state, "Ann", "Ben", "Cleo", "Dora", "Finn", "Gus")
    night = after(tie, "kill Finn", "kill Finn", "see Gus")
    assert "protect Gus" not in legal_actions(night)
    assert "protect Dora" in legal_actions(night)


def test_the_village_wins_without_werewolves_and_pays_the_dead_too():
    state = after(NIGHT_1, "kill Finn", "kill Finn", "see Ben", "protect Dora")
    state = voted(state, *["Ann"] * 5)
    state = after(state, "kill Dora", "see Gus", "protect Dora")
    assert returns(state) is None
    state = voted(state, *["Ben"] * 4)
    assert returns(state) == (-1.0, -1.0, 1.0, 1.0, 1.0, 1.0, 1.0)
    assert verdict(state, 4) == ("win", True)
    assert observation(state, 4).endswith("Finn was a villager, Gus was a villager.")


def test_the_werewolves_win_after_the_last_day():
    state = DAY_1
    for _ in range(LAST_DAY):
        state = voted(state, *(state.names[seat] for seat in state.queue))
        # The doctor protects two players in turn, whom the werewolves name, so that no one dies.
        victim = "Dora" if state.day % 2 else "Emil"
        state = after(state, f"kill {victim}", f"kill {victim}", "see Gus", f"protect {victim}")
    assert (state.winner, len(state.living)) == ("werewolves", 7)


def test_three_illegal_replies_lose_the_game_for_a_winning_side_too():
    vote = DAY_1
    while vote.phase == "talk":
        vote = play(vote, "")
    again = refuse(refuse(vote, "?"), "vote Zoe")
    assert "That is not a legal reply (tries left: 1)." in observation(again, 6)
    out = refuse(again, "vote Gus")
    assert 6 not in out.living
    assert "After 3 illegal replies, Gus left the game: Gus was a villager." in observation(out, 1)
    assert verdict(out._replace(winner="village"), 6) == ("illegal", False)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("vote Ann", "vote Ann"),
        ("ANN.", "vote Ann"),
        ("<think>Ben?</think>I vote for Ann!", "vote Ann"),
        ("My choice - vote: Ann - because Ben defended Dora", "vote Ann"),
        ("vote Ann vote Ben", "vote ann vote ben"),
        ("Ann or Ben", "ann or ben"),
        ("Annabel", "annabel"),
        ("", ""),
    ],
)
def test_votes_are_read_inside_sentences(text, action):
    assert read(DAY_1._replace(phase="vote"), text) == action


def test_claims_are_understood():
    found = claims_in(
        "Hm. I am the seer: Ben is a werewolf. Cleo is not a werewolf, I suspect Dora"
    )
    assert found == (True, (("ben", True), ("cleo", False)), ("dora",))
    assert not claims_in("Is the seer among us?").seer


def test_evidence_counts_the_fate_of_those_who_claim():
    # Cleo, the seer, accuses Ann and is killed: her claim is certain for careful players.
    state = after(DAY_1, "", "", "", "I am the seer: Ann is a werewolf.", "", "", "")
    state = voted(state, *["Emil"] * 6, "Ann")
    state = after(state, "kill Cleo", "kill Cleo", "see Gus", "protect Gus")
    doubts = suspicions(state, careful=True)
    assert doubts[0] > 100 > max(doubts[seat] for seat in (1, 3, 5, 6))
    # Ben claims the same of Dora, and the seer is known to have been another.
    lie = after(state, "", "I am the seer: Dora is a werewolf.")
    assert lie.log[-1].seat != 2
    assert suspicions(lie, careful=True)[lie.log[-1].seat] > 100


def games(strategies, players, seeds):
    """States of games; each seat has the strategy of its side: (village, werewolves)."""
    game = werewolf(players)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        state = game.initial(rng)
        while not state.winner:
            yield state
            strategy = strategies[state.roles[state.mover] == "werewolf"]
            state = play(state, game.read_reply(state, strategy(game, state, rng)).action)
        yield state


def unknown_elsewhere(state, viewer, rng):
    """The state with other hidden roles that agree with all that the viewer knows."""
    fixed = {viewer, *(seat for seat in range(len(state.names)) if seat not in state.living)}
    if state.roles[viewer] == "werewolf":
        fixed |= set(state.seats_of("werewolf"))
    seen = {e.target for e in state.log if e.kind == "see" and e.seat == viewer}
    free = [seat for seat in range(len(state.names)) if seat not in fixed]
    worlds = []
    for mixed in permutations(state.roles[seat] for seat in free):
        roles = list(state.roles)
        for seat, role in zip(free, mixed, strict=True):
            roles[seat] = role
        if all((roles[s] == "werewolf") == (state.roles[s] == "werewolf") for s in seen):
            worlds.append(tuple(roles))
    return state._replace(roles=worlds[rng.integers(len(worlds))])


@pytest.mark.long
@pytest.mark.parametrize("players", [5, 7])
def test_no_player_sees_or_acts_on_a_hidden_role(players):
    rng, changed = np.random.default_rng(0), 0
    game = werewolf(players)
    for state in games((by_claims, by_evidence), players, range(2)):
        if state.winner:
            continue
        for viewer in range(players):
            other = unknown_elsewhere(state, viewer, rng)
            changed += other != state
            if viewer == state.mover:
                for strategy in STRATEGIES:
                    one, two = (strategy(game, s, np.random.default_rng(0)) for s in (state, other))
                    assert one == two
            assert observation(other, viewer) == observation(state, viewer)
    assert changed > 100


@given(st.integers(0, 10**6), st.integers(5, 7), st.permutations(STRATEGIES))
def test_scripted_players_play_legally_and_games_end(seed, players, strategies):
    for number, state in enumerate(games(strategies[:2], players, [seed])):
        assert state.winner or state.mover in state.living
        assert state.refused == 0
        assert number < LAST_DAY * 20
    assert state.winner


def village_wins(village, wolves, count=80):
    ends = [s for s in games((village, wolves), 7, range(count)) if s.winner]
    return sum(state.winner == "village" for state in ends) / count


@pytest.mark.long
def test_each_strength_wins_more_than_the_weaker_one():
    # Measured in 400 games: 0.04, 0.17, 0.81 for villages; 0.39 against the best werewolves.
    assert village_wins(at_random, by_claims) < 0.12
    assert village_wins(by_claims, by_claims) < village_wins(by_evidence, by_claims) - 0.4
    assert village_wins(by_evidence, by_evidence) < village_wins(by_evidence, by_claims) - 0.2


def test_the_oracle_names_werewolves_and_protects_the_victim():
    assert best_actions(START) == ("see Ann",)
    assert best_actions(after(NIGHT_1, "kill Cleo", "kill Gus", "see Finn")) == ("protect Gus",)
    assert best_actions(NIGHT_1) == ("kill Cleo",)


def test_partners_do_not_get_stronger_with_the_level():
    env = gym.make(ID, level="hard").unwrapped
    env.reset(seed=0)
    wolf, villager = (env.state.seats_of(role)[0] for role in ("werewolf", "villager"))
    env.seat, env.np_random = villager, np.random.default_rng(0)
    assert env.opponent is by_evidence
    state = env.state._replace(day=2, phase="talk", queue=(wolf,))
    expected = by_evidence(env.game, state, np.random.default_rng(0))
    assert env.rival_action(state) == expected
    env.seat, env.np_random = wolf, np.random.default_rng(0)
    state = state._replace(queue=(env.state.seats_of("werewolf")[1],))
    assert env.rival_action(state) == by_claims(env.game, state, np.random.default_rng(0))
