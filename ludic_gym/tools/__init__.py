"""Tools: functions that a model may call, and some that are ready."""
