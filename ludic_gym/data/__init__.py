"""Rows by name: a bundled sample, a local file, or a data set on the Hugging Face hub."""

from ludic_gym.data.hub import HUB_SETS, HubData, HubSet, hub_data
from ludic_gym.data.load import File, Origin, Rows, load, locate
from ludic_gym.data.row import Row, renamed, text_field, words

__all__ = [
    "HUB_SETS",
    "File",
    "HubData",
    "HubSet",
    "Origin",
    "Row",
    "Rows",
    "hub_data",
    "load",
    "locate",
    "renamed",
    "text_field",
    "words",
]
