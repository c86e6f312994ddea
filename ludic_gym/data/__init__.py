"""Rows by name: a bundled sample, a local file, or a data set on the Hugging Face hub."""
