"""Requests that are refused as those of web pages."""

import pytest

from ludic_gym.web_pages import page_fault


@pytest.mark.parametrize("name", ["localhost", "localhost:8000", "127.0.0.1:1", "[::1]:8000"])
def test_programs_of_this_machine_are_served(name):
    assert page_fault("127.0.0.1", name, None) == ""
    assert page_fault("::1", name, f"http://{name}") == ""


@pytest.mark.parametrize("name", ["evil.example", "127.0.0.1.evil.example", "", "[", "[::1", "a]b"])
def test_other_names_and_what_is_no_name_are_refused(name):
    assert repr(name) in page_fault("localhost", name, None)


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://[", ""])
def test_pages_are_refused_on_every_address(origin):
    assert repr(origin) in page_fault("0.0.0.0", "10.0.0.7:8000", origin)
    assert page_fault("0.0.0.0", "10.0.0.7:8000", None) == ""
