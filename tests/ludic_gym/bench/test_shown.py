"""Results of evaluations in a notebook."""

import json
import re

import gymnasium as gym

import ludic_gym as lg

EVIL = "<script>alert(1)</script>"


def evaluated(*replies, env="ludic/Arithmetic-v0", **options):
    """One episode per reply; "" is that of the oracle."""
    scripts = iter(replies)

    def plays(env):
        reply = next(scripts)
        return lg.OraclePolicy(env) if not reply else lg.ScriptedPolicy([reply])

    return lg.evaluate(env, plays, episodes=len(replies), concurrency=1, progress=False, **options)


def test_a_result_holds_its_episodes_by_index():
    result = evaluated("", "1", "")
    assert [episode.index for episode in result.played] == [0, 1, 2]
    assert [e.rollouts[0].total_reward for e in result.played] == [1.0, 0.0, 1.0]
    assert "played" not in repr(result)
    assert "played" not in result.numbers


def test_the_first_reply_that_went_wrong_is_one_attribute_away():
    failure = evaluated("", "", "1", "2").first_failure
    assert (failure.episode.index, failure.wrong) == (2, 0)
    assert re.search(r"\n> 1\n\n\nfailure, reward 0$", str(failure))
    assert repr(failure) == str(failure)
    assert evaluated("", "").first_failure is None


def test_a_reply_without_an_action_went_wrong_before_the_end():
    replies = ["50", "dunno", "25"]
    client = lg.ScriptedClient([*replies, *["60"] * 9])
    result = lg.evaluate(
        "ludic/GuessTheNumber-v0", lambda env: lg.ChatPolicy(client), episodes=1, progress=False
    )
    assert result.first_failure.wrong == 1


def test_rows_are_flat_and_one_per_episode():
    rows = evaluated("", "1").rows()
    assert [(r["index"], r["success"], r["reward"], r["reply"]) for r in rows][1] == (
        1, False, 0.0, "1",
    )  # fmt: skip
    assert all(isinstance(v, str | int | float | None) for row in rows for v in row.values())
    assert json.loads(json.dumps(rows)) == rows


def test_an_episode_that_the_environment_ended_has_a_row_and_no_wrong_reply():
    class Broken(gym.Env):
        observation_space = action_space = gym.spaces.Text(9)

        def reset(self, *, seed=None, options=None):
            raise RuntimeError(EVIL)

    result = evaluated("1", env=Broken)
    assert result.first_failure is None
    assert (result.rows()[0]["blame"], result.rows()[0]["turns"]) == ("environment", 0)
    assert EVIL not in result._repr_html_()


def test_a_notebook_shows_a_table_with_intervals_and_three_transcripts_failures_first():
    page = evaluated("", "", "", EVIL)._repr_html_()
    assert "<td>3/4</td><td>75.0%</td><td>[30.1, 95.4]</td>" in page
    shown = re.findall("<summary>(.*?)</summary>", page)
    assert shown == [
        "episode 3, seed 3: illegal, reply 1 went wrong",
        "episode 0, seed 0: success",
        "episode 1, seed 1: success",
    ]
    assert "&lt;script&gt;" in page
    assert "<script" not in page


def test_a_long_transcript_is_shortened_in_a_notebook():
    assert len(evaluated("x" * 100_000)._repr_html_()) < 12_000


def test_a_result_without_episodes_is_a_table():
    assert lg.Tally().result()._repr_html_().startswith("<table>")
