from html.parser import HTMLParser

import gymnasium as gym
import pytest

import ludic_gym  # noqa: F401 (registers the ids)
from ludic_gym.envs.core.base import TextEnv, end, proceed
from ludic_gym.errors import ConfigError
from ludic_gym.wrappers.messages import ChatMessages
from ludic_gym.wrappers.recorder import RecordText

HOSTILE = "</pre><script>alert(1)</script>\x1b[2J\x9b\u202e\ud800"


class Echo(TextEnv):
    def start(self, options):
        return "say <it>", "Say & go."

    def turn(self, action):
        if action != "end":
            return proceed(action)
        return end(action, success=True, info={"word": "<b>"}, said=1.0)


def play(env, *actions, seed=None):
    env.reset(seed=seed)
    for action in actions:
        env.step(action)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def shown(page):
    """The text of a page, its tags, and how it is cut into lines."""
    tags, text = [], []
    parser = HTMLParser()
    parser.handle_starttag = lambda tag, attrs: tags.append(tag)
    parser.handle_data = text.append
    parser.feed(page)
    return tags, "".join(text)


def test_an_episode_is_a_page(tmp_path):
    play(RecordText(Echo(), tmp_path / "new" / "folder"), "one", "end")
    folder = tmp_path / "new" / "folder"
    assert names(folder) == ["episode-0.html"]
    _, text = shown((folder / "episode-0.html").read_text())
    parts = ["Say & go.", "say <it>", "one", "end", "terminated after 2 turns, reward 1"]
    assert all(part in text for part in [*parts, "word: <b>", "reward/said: 1.0"])


def test_nothing_in_the_texts_is_markup(tmp_path):
    play(RecordText(Echo(), tmp_path), HOSTILE, "end")
    page = (tmp_path / "episode-0.html").read_text()
    tags, text = shown(page)
    assert "script" not in tags
    assert "<script>alert(1)</script>" in text
    assert not set(page) & set("\x1b\x9b\u202e\ud800")
    assert "␛[2J" in page


def test_the_trigger_chooses_episodes_by_number(tmp_path):
    env = RecordText(Echo(), tmp_path, episode_trigger=lambda n: n % 2 == 1)
    for _ in range(4):
        play(env, "end")
    assert names(tmp_path) == ["episode-1.html", "episode-3.html"]


def test_an_unfinished_episode_is_written_when_it_is_left(tmp_path):
    env = RecordText(Echo(), tmp_path, name_prefix="run")
    play(env, "one")
    play(env, "one", "two")
    env.close()
    assert names(tmp_path) == ["run-0.html", "run-1.html"]
    assert "not finished after 2 turns, reward 0" in (tmp_path / "run-1.html").read_text()


def test_an_episode_without_a_turn_is_not_written(tmp_path):
    env = RecordText(Echo(), tmp_path / "none")
    env.reset()
    env.reset()
    env.close()
    assert not (tmp_path / "none").exists()


def test_no_file_is_overwritten(tmp_path):
    for word in ("first", "second", "third"):
        play(RecordText(Echo(), tmp_path), word, "end")
    assert names(tmp_path) == ["episode-0-2.html", "episode-0-3.html", "episode-0.html"]
    assert "second" in (tmp_path / "episode-0-2.html").read_text()


def test_the_title_names_the_id_and_the_seed(tmp_path):
    env = RecordText(gym.make("ludic/Arithmetic-v0"), tmp_path)
    play(env, "5", seed=7)
    page = (tmp_path / "episode-0.html").read_text()
    assert "<title>ludic/Arithmetic-v0, episode 0, seed 7</title>" in page


def test_what_cannot_work_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="put RecordText further in"):
        RecordText(ChatMessages(Echo()), tmp_path)
