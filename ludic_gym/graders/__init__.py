"""Graders: functions from an answer and the truth to a `Grade`."""

from ludic_gym.graders.grade import Grade
from ludic_gym.graders.numeric import grade_number, parse_number

__all__ = ["Grade", "grade_number", "parse_number"]
