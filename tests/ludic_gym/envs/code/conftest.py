"""Fixtures of environments that run programs."""

import json

import pytest

from ludic_gym.errors import NoSandbox
from ludic_gym.sandbox.choice import shared_sandbox


@pytest.fixture(scope="module")
def a_sandbox():
    try:
        shared_sandbox("auto")
    except NoSandbox as error:
        pytest.skip(str(error))


@pytest.fixture
def rows(tmp_path):
    def write(*rows):
        path = tmp_path / f"{len(list(tmp_path.iterdir()))}.jsonl"
        path.write_text("\n".join(map(json.dumps, rows)))
        return str(path)

    return write
