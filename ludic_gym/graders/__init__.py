"""Graders: functions from an answer and the truth to a `Grade`."""
