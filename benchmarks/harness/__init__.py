"""Rates, tables and loads that the benchmarks share."""
