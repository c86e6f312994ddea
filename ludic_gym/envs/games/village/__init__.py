"""Werewolf: its rules, its texts, and its scripted players."""
