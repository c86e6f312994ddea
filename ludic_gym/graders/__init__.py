"""Graders: functions from an answer and the truth to a `Grade`."""

from ludic_gym.graders.constraints import grade_constraints
from ludic_gym.graders.extract import extract
from ludic_gym.graders.grade import Grade
from ludic_gym.graders.maths import grade_maths
from ludic_gym.graders.numeric import grade_number, parse_number
from ludic_gym.graders.text import grade_choice, grade_exact, grade_f1

__all__ = [
    "Grade",
    "extract",
    "grade_choice",
    "grade_constraints",
    "grade_exact",
    "grade_f1",
    "grade_maths",
    "grade_number",
    "parse_number",
]
