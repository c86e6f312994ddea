import pytest

from ludic_gym.errors import ConfigError
from ludic_gym.parsers import (
    Parser,
    ParseResult,
    boxed_parser,
    compose_parsers,
    json_parser,
    last_number_parser,
    regex_parser,
    think_prefix_parser,
    xml_tag_parser,
)


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<move><move>A1</move></move>", "A1"),
        ("<move>5</move>", "5"),
        ("I take <move>\n 5 \t</move> now.", "5"),
        ("<MOVE>5</Move>", "5"),
        ("< move >5</ move >", "5"),
        ("not <move>1</move> but <move>2</move>", "2"),
        ("<move>a\nb</move>", "a\nb"),
        ("<move>1 <move>2</move>", "2"),
        ("<move></move>", None),
        ("<move>  </move>", None),
        ("<move>5", None),
        ("5</move>", None),
        ("</move>5<move>", None),
        ("<moves>5</moves>", None),
        ("", None),
    ],
)
def test_the_last_closed_xml_tag_holds_the_action(text, action):
    assert xml_tag_parser("move")(text).action == action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("  <move>5</move>\n", "5"),
        ("<move>5</move><move>5</move>", None),
        ("<move>5</move>.", None),
        ("I take <move>5</move>", None),
        ("<move><move>5</move>", None),
        ("<move> </move>", None),
    ],
)
def test_exact_mode_wants_one_tag_and_nothing_else(text, action):
    assert xml_tag_parser("move", exact=True)(text).action == action


def test_a_tag_that_is_no_name_is_refused():
    with pytest.raises(ConfigError, match="'a b'"):
        xml_tag_parser("a b")


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("<think>hm</think>5", "5"),
        ("\n<think>a\nb</think>\n\n 5 \n", "5"),
        ("<think></think>5", "5"),
        ("<think>a</think>b</think>c", "b</think>c"),
        ("<think>hm</think>  ", None),
        ("<think>hm", None),
        ("hm</think>5", None),
        ("5", None),
        ("So: <think>hm</think>5", None),
    ],
)
def test_the_action_follows_a_leading_think_block(text, action):
    assert think_prefix_parser()(text).action == action


def test_a_think_block_that_the_template_opened_needs_no_opening_tag():
    parse = think_prefix_parser(opened=True)

    assert parse("hm</think>5").action == "5"
    assert parse("hm").action is None


@pytest.mark.parametrize(
    ("text", "action"),
    [
        (r"so \boxed{18}", "18"),
        (r"\boxed{1} no, \boxed{ 2 }", "2"),
        (r"\boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"\boxed{\{1, 2\}}", r"\{1, 2\}"),
        (r"\boxed{\{}", r"\{"),
        (r"\boxed {7}", "7"),
        (r"\boxed{1} and \boxed{2", None),
        (r"\boxed{}", None),
        (r"\fbox{3}", None),
        ("18", None),
    ],
)
def test_the_last_box_holds_the_action(text, action):
    assert boxed_parser()(text).action == action


@pytest.mark.parametrize(
    "before",
    [r"\frac{1}{2} + " * 100, '{"move": "4"} ' * 100, '{"a": {x} ' * 100, "{" * 1_000_000],
)
def test_an_object_is_found_behind_any_number_of_braces(before):
    assert json_parser("move")(before + 'so {"move": "5"}').action == "5"


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ("It is −5.", "-5"),
        ("It costs -$7.50", "-7.50"),
        ("$-7", "-7"),
        ("about 3.5e-4", "3.5e-4"),
        ("p = .25", ".25"),
        ("pages 10-15", "15"),
        ("x-5", "5"),
        ("so 1,200 - 3 = 1,197.", "1197"),
        ("none", None),
    ],
)
def test_the_last_number_keeps_its_sign_and_exponent(text, action):
    assert last_number_parser()(text).action == action


@pytest.mark.parametrize(
    ("text", "action"),
    [
        ('{"move": "5"}', "5"),
        ('Sure:\n```json\n{"move": " 5 "}\n```', "5"),
        ('{"move": 5}', "5"),
        ('{"move": true}', "true"),
        ('{"move": {"to": "e4"}}', '{"to": "e4"}'),
        ('{"move": "1"} or rather {"move": "2"}', "2"),
        ('{x} {"move": "3"}', "3"),
        ('{"move": ""}', None),
        ('{"step": "5"}', None),
        ('{"move": "5"', None),
        ("5", None),
    ],
)
def test_the_last_json_object_holds_the_action_at_its_key(text, action):
    assert json_parser("move")(text).action == action


def test_without_a_key_the_action_is_the_json_object():
    assert json_parser()('go {"a":  1}').action == '{"a": 1}'


def test_exact_json_is_the_whole_text_and_an_object():
    parse = json_parser("move", exact=True)

    assert parse(' {"move": "5"} ').action == "5"
    assert parse('{"move": "5"}.').action is None
    assert parse('["move"]').action is None


@pytest.mark.parametrize("text", ["{" * 100_000, '{"a":' * 20_000, "[" * 100_000, "9" * 100_000])
def test_text_made_to_be_slow_or_deep_only_fails_to_parse(text):
    for parse in (json_parser(), json_parser(exact=True), boxed_parser(), xml_tag_parser("a")):
        assert parse(text).action is None


def test_the_last_match_of_a_regex_holds_the_action():
    assert regex_parser(r"move (\d)")("move 1, then move 2").action == "2"
    assert regex_parser(r"\d+")("take 12").action == "12"
    assert regex_parser(r"\d+")("take").action is None


def test_a_broken_regex_is_refused():
    with pytest.raises(ConfigError, match=r"'\('"):
        regex_parser("(")


PARSERS = [
    (xml_tag_parser, "move", "<move>5</move>"),
    (think_prefix_parser, None, "<think>a</think>5"),
    (boxed_parser, None, r"\boxed{5}"),
    (json_parser, "move", '{"move": 5}'),
    (regex_parser, r"\d", "5"),
]


@pytest.mark.parametrize(("make", "argument", "text"), PARSERS)
def test_every_parser_rewards_success_and_punishes_failure_as_told(make, argument, text):
    arguments = [] if argument is None else [argument]
    parse: Parser = make(*arguments, success_reward=0.25, error_reward=-0.75)

    assert parse(text) == ParseResult("5", 0.25)
    failure = parse("nothing")
    assert (failure.action, failure.reward) == (None, -0.75)
    assert failure.feedback.startswith(("Reply with", "Start with"))


def test_composed_parsers_feed_each_other_and_add_their_rewards_up():
    parse = compose_parsers(
        think_prefix_parser(success_reward=0.1), xml_tag_parser("move", success_reward=0.2)
    )

    result = parse("<think><move>1</move></think><move>2</move>")

    assert result.action == "2"
    assert result.reward == pytest.approx(0.3)


def test_the_first_failure_of_composed_parsers_ends_them():
    asked: list[str] = []

    def spy(text: str) -> ParseResult:
        asked.append(text)
        return ParseResult(text)

    parse = compose_parsers(
        think_prefix_parser(success_reward=0.1), xml_tag_parser("move", error_reward=-0.5), spy
    )

    # The thinking was right (+0.1), the tag was not (-0.5).
    result = parse("<think>a</think>2")

    assert result.reward == pytest.approx(-0.4)
    assert result.feedback == "Reply with <move>...</move>."
    assert asked == []


def test_composing_no_parsers_is_refused():
    with pytest.raises(ConfigError, match="at least one"):
        compose_parsers()
