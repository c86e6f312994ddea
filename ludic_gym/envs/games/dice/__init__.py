"""Liar's Dice: its rules, and its scripted players."""
