"""Graders: functions from an answer and the truth to a `Grade`."""

from ludic_gym.graders.constraints import grade_constraints
from ludic_gym.graders.extract import extract
from ludic_gym.graders.grade import Exchange, Grade
from ludic_gym.graders.judge import grade_by_judge
from ludic_gym.graders.maths import grade_maths
from ludic_gym.graders.numeric import grade_number, parse_number
from ludic_gym.graders.rubric import (
    Component,
    Rubric,
    RubricGrade,
    by_program,
    graded_episodes,
    graded_rollout,
)
from ludic_gym.graders.text import grade_choice, grade_exact, grade_f1

__all__ = [
    "Component",
    "Exchange",
    "Grade",
    "Rubric",
    "RubricGrade",
    "by_program",
    "extract",
    "grade_by_judge",
    "grade_choice",
    "grade_constraints",
    "grade_exact",
    "grade_f1",
    "grade_maths",
    "grade_number",
    "graded_episodes",
    "graded_rollout",
    "parse_number",
]
