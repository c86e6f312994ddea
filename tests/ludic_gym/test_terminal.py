import pytest

from ludic_gym.terminal import printable


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1 2\n3\té 你好 😀", "1 2\n3\té 你好 😀"),
        ("\x1b[2J", "␛[2J"),
        ("a\rb\0\x07\x7f", "a␍b␀␇␡"),
        ("\x9b31m", "�31m"),
        ("abc\u202edef\u2066g", "abc�def�g"),
        ("\ud800", "�"),
    ],
)
def test_only_what_can_be_seen_stays_as_it_is(text, shown):
    assert printable(text) == shown


def test_all_of_it_can_be_encoded_and_none_of_it_controls():
    shown = printable("".join(map(chr, range(0x110000))))
    shown.encode("utf-8")
    assert {c for c in shown if ord(c) < 32 or 0x7F <= ord(c) < 0xA0} == {"\t", "\n"}
