"""The contract that every text environment keeps, as one call: `check_text_env(id)`."""

from ludic_gym.testing.check import Verdict, check_text_env, complaint_about, verdicts

__all__ = ["Verdict", "check_text_env", "complaint_about", "verdicts"]
