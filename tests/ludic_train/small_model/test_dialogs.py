import random

import pytest

from ludic_gym.envs.puzzles.countdown import grade_countdown
from ludic_gym.graders.extract import extract
from ludic_gym.types import Decision, Step
from ludic_train.models.chat_template import dialog_rollout
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.rows import trajectory_from
from ludic_train.small_model.dialogs import all_dialogs, calculation, dialogs_of, reply_text
from ludic_train.small_model.lessons import IN_STEPS, IN_TAGS, LESSONS, Lesson
from ludic_train.small_model.make import typed_dialog

COUNTDOWN = Lesson(env_id="ludic/Countdown-v0", share=1, questions=2, replies=IN_STEPS)
FOUR = Lesson(env_id="ludic/ConnectFour-v0", share=1)


async def test_every_lesson_makes_dialogs_of_questions_and_replies():
    dialogs = await all_dialogs(LESSONS, 60, 0)
    assert len(dialogs) >= len(LESSONS)
    for dialog in dialogs:
        roles = [message["role"] for message in dialog]
        assert roles == ["system", *["user", "assistant"] * (len(dialog) // 2)]
        assert all(message["content"] for message in dialog)


async def test_replies_in_any_wording_are_graded_as_right():
    for dialog in await dialogs_of(COUNTDOWN, 20):
        assert len(dialog) == 1 + 2 * COUNTDOWN.questions
        for question, reply in zip(dialog[1::2], dialog[2::2], strict=True):
            given, _, target = question["content"].partition("\nTarget: ")
            truth = f"{given.removeprefix('Numbers: ')} = {target}"
            assert grade_countdown(reply["content"], truth).correct


async def test_equal_seeds_make_equal_dialogs_and_others_make_others():
    first = await dialogs_of(FOUR, 5, seed=1)
    assert first == await dialogs_of(FOUR, 5, seed=1)
    assert first != await dialogs_of(FOUR, 5, seed=2)
    assert first != await dialogs_of(FOUR, 5, number=1, seed=1)


async def test_noise_is_the_share_of_random_actions():
    # The oracle wins every game; of random players, two fifths lose.
    calm = await dialogs_of(FOUR, 40)
    wild = await dialogs_of(Lesson(env_id="ludic/ConnectFour-v0", share=1, noise=1.0), 40)
    same = [a == b for a, b in zip(calm, wild, strict=True)]
    assert sum(same) < 20


async def test_a_dialog_of_several_turns_is_one_row():
    dialogs = await dialogs_of(FOUR, 5)
    tokenizer = make_tokenizer([m["content"] for dialog in dialogs for m in dialog])
    for dialog in dialogs:
        [row] = trajectory_from(typed_dialog(dialog, tokenizer)).rows
        [generic] = trajectory_from(dialog_rollout(dialog, tokenizer)).rows
        assert row.input_ids.tolist() == generic.input_ids.tolist()
        assert row.action_mask.tolist() == generic.action_mask.tolist()


@pytest.mark.parametrize("template", IN_TAGS)
def test_wordings_keep_the_answer(template):
    lesson = Lesson(env_id="ludic/Arithmetic-v0", share=1, replies=(template,))
    step = Step(observation="Ann has 1 pen.", decision=Decision(action="85"), reward=1.0)
    assert extract(reply_text(step, lesson, random.Random(0))) == ("85", "tag")


def test_a_calculation_goes_from_the_inside_out():
    # 24 / 4 = 6, then 24 - 6 = 18, then 18 + 13 = 31.
    steps = calculation("Numbers: 13 24 4 24\nTarget: 31", "((24 - (24 / 4)) + 13)")
    assert steps == "24 / 4 = 6, 24 - 6 = 18, 18 + 13 = 31"
