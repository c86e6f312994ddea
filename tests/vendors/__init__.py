"""Behaviours of vendors, for tests of whatever reads or writes their formats."""
