"""BFCL: rows of its form are read, and calls are graded as by the published program."""

import copy
import json
import os
import random
import sys
import types
from pathlib import Path

import gymnasium as gym
import pytest

import ludic_gym as lg
from ludic_gym.envs.tools.bfcl import (
    ANY_CALL,
    CATEGORIES,
    NO_CALL,
    BFCLEnv,
    _question,
    answered_rows,
    read_calls,
)
from ludic_gym.envs.tools.bfcl_rules import plain_name, problem_of_calls, right_call
from ludic_gym.envs.tools.calls import Call
from ludic_gym.envs.tools.code_literals import literal, python_calls, spelt
from ludic_gym.errors import DataError
from ludic_gym.policies.chat import assistant_message
from ludic_gym.testing.check import check_text_env


def function(name, **types_of):
    properties = {key: dict(kind) for key, kind in types_of.items()}
    required = [key for key, kind in properties.items() if not kind.pop("free", False)]
    parameters = {"type": "dict", "properties": properties, "required": required}
    return {"name": name, "description": f"Do {name}.", "parameters": parameters}


TEXT, WHOLE, NUMBER = {"type": "string"}, {"type": "integer"}, {"type": "float"}
FLAG = {"type": "boolean", "free": True}
WEATHER = function("weather.get", city=TEXT, days=WHOLE, metric=FLAG)
PRICE = function("price", items={"type": "array", "items": NUMBER}, options={"type": "dict"})
ROWS = {
    "simple_python": (
        "Weather in New York for 3 days?",
        [WEATHER],
        [{"weather.get": {"city": ["New York, NY"], "days": [3], "metric": ["", True]}}],
    ),
    "parallel_multiple": (
        "The price of 1.5 and 2, and the weather in Oslo today.",
        [WEATHER, PRICE],
        [
            {"price": {"items": [[1.5, 2.0]], "options": [{"tax": [True], "note": ["", "a b"]}]}},
            {"weather.get": {"city": ["Oslo"], "days": [1], "metric": ["", True]}},
        ],
    ),
    "irrelevance": ("Who was Ada Lovelace?", [WEATHER], None),
    "live_relevance": ("Will it rain?", [WEATHER], None),
}
SINGLE = '{"name": "weather.get", "arguments": {"city": "new york ny", "days": 3}}'


@pytest.fixture
def folder(tmp_path):
    """A folder in the layout of the leaderboard, with a row for each of four categories."""
    (tmp_path / "possible_answer").mkdir()
    for category, (text, functions, answers) in ROWS.items():
        name, row_id = f"BFCL_v4_{category}.json", f"{category}_0"
        question = [[{"role": "user", "content": text}]]
        row = {"id": row_id, "question": question, "function": functions}
        (tmp_path / name).write_text(json.dumps(row))
        if answers:
            answer = {"id": row_id, "ground_truth": answers}
            (tmp_path / "possible_answer" / name).write_text(json.dumps(answer))
    return tmp_path


def earned(env, action):
    env.reset(seed=0)
    text, reward, *_, info = env.step(action)
    assert text == info["rule"]
    assert info["success"] == (reward == 1)
    return reward


@pytest.mark.parametrize("category", ROWS)
def test_the_oracle_wins_by_the_possible_answers(folder, category):
    env = BFCLEnv(str(folder), category)
    env.reset(seed=0)
    assert earned(env, env.best_action()) == 1
    assert earned(env, '{"name": "weather.get", "argum') == 0


@pytest.mark.parametrize(
    "reply",
    [
        SINGLE,
        f"[{SINGLE}]",
        f"I look it up.\n<tool_call>{SINGLE}</tool_call>",
        f"```json\n[{SINGLE}]\n```",
        "[weather.get(city='New York, NY', days=3)]",
        'weather_get("New York, NY", 3, metric=true)',
        "<think>weather.get(city='Oslo')?</think>[weather.get(city='New York, NY', days=3)]",
        SINGLE.replace("weather.get", "weather_get").replace("3", "3.0"),
    ],
)
def test_right_calls_earn_1_in_every_form(folder, reply):
    assert earned(BFCLEnv(str(folder), "simple_python"), reply) == 1


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        ("I cannot do that.", "1 calls are right, got 0"),
        ("", "1 calls are right, got 0"),
        (f"[{SINGLE}, {SINGLE}]", "1 calls are right, got 2"),
        (SINGLE.replace("3", "4"), "weather.get: 4 is no right value of 'days'"),
        (SINGLE.replace("3", '"3"'), "weather.get: '3' is no right value of 'days'"),
        (SINGLE.replace("3", "true"), "weather.get: True is no right value of 'days'"),
        (SINGLE.replace(', "days": 3', ""), "weather.get: days must be given"),
        (SINGLE.replace("3", '3, "hour": 2'), "weather.get: no argument 'hour' is wanted"),
        (SINGLE.replace("weather.get", "rain"), "there is no function 'rain'"),
        (SINGLE.replace("3", '3, "metric": false'), "weather.get: False is no right value of "),
    ],
)
def test_wrong_calls_earn_nothing_and_are_told_why(folder, reply, reason):
    env = BFCLEnv(str(folder), "simple_python")
    env.reset(seed=0)
    text, reward, *_ = env.step(reply)
    assert reward == 0
    assert text.startswith(reason)


def test_no_call_is_right_where_no_function_fits_and_any_call_where_one_does(folder):
    refusal = "I know no function for that; weather.get is about the weather."
    for category, refused, called in (("irrelevance", 1, 0), ("live_relevance", 0, 1)):
        env = BFCLEnv(str(folder), category)
        assert (earned(env, refusal), earned(env, SINGLE)) == (refused, called)
        # A call that was meant and cannot be read is no refusal.
        assert earned(env, SINGLE[:-3]) == earned(env, "weather.get(city=") == 0


def test_the_order_of_parallel_calls_is_free(folder):
    env = BFCLEnv(str(folder), "parallel_multiple")
    env.reset(seed=0)
    calls = json.loads(env.best_action())
    assert earned(env, json.dumps(calls[::-1])) == 1
    assert earned(env, json.dumps([calls[0]] * 2)) == 0
    calls[0]["arguments"]["options"]["note"] = "A-b"
    assert earned(env, json.dumps(calls)) == 1
    calls[0]["arguments"]["options"]["tax"] = False
    assert earned(env, json.dumps(calls)) == 0


def test_functions_are_offered_as_tools_with_json_types(folder):
    env = BFCLEnv(str(folder), "parallel_multiple")
    env.reset(seed=0)
    tools = {tool["function"]["name"]: tool["function"] for tool in env.action_tools}
    items = tools["price"]["parameters"]["properties"]["items"]
    assert items == {"type": "array", "items": {"type": "number"}}
    assert tools["weather_get"]["parameters"]["required"] == ["city", "days"]
    calls = [
        lg.ToolCall(
            id=one["name"], name=plain_name(one["name"]), arguments=json.dumps(one["arguments"])
        )
        for one in json.loads(env.best_action())
    ]
    reply = lg.Completion(text="", finish_reason="tool_calls", tool_calls=tuple(calls))
    client = lg.ScriptedClient([assistant_message(reply)])
    policy = lg.Harness(tool_format="native").policy(client, env)
    task = lg.Task(env_id="ludic/BFCL-v0", seed=0, sampling=lg.Sampling(max_tokens=2000))
    rollout = lg.run_blocking(lg.run_episode(env, policy, task))
    assert rollout.total_reward == 1


def test_a_folder_without_the_files_or_with_broken_ones_is_an_error(folder):
    with pytest.raises(DataError, match="no file possible_answer/BFCL_v4_parallel"):
        BFCLEnv(str(folder), "parallel")
    with pytest.raises(DataError, match="data is the folder"):
        BFCLEnv(str(folder / "nothing"))
    (folder / "BFCL_v4_irrelevance.json").write_text('{"id": 1}')
    with pytest.raises(DataError, match="line 1: no row of BFCL"):
        BFCLEnv(str(folder), "irrelevance")
    (folder / "BFCL_v4_irrelevance.json").write_text("[")
    with pytest.raises(DataError, match="not one JSON object a line"):
        BFCLEnv(str(folder), "irrelevance")
    (folder / "possible_answer" / "BFCL_v4_simple_python.json").write_text(
        '{"id": "x", "ground_truth": []}'
    )
    with pytest.raises(DataError, match="no possible answer for 'simple_python_0'"):
        BFCLEnv(str(folder), "simple_python")


@pytest.mark.long
def test_it_keeps_the_contract(folder):
    check_text_env("ludic/BFCL-v0", data=str(folder), category="parallel_multiple")


@pytest.mark.parametrize(
    ("text", "kind", "inner", "language", "value"),
    [
        ("42", "integer", "", "java", 42),
        (" 42 ", "integer", "", "java", 42),
        ("42L", "integer", "", "java", "42L"),
        ("42L", "long", "", "java", 42),
        ("1.5f", "float", "", "java", 1.5),
        ("true", "boolean", "", "java", True),
        ("True", "boolean", "", "java", "True"),
        ('new String[]{"a, b", "c"}', "Array", "String", "java", ["a, b", "c"]),
        ("new ArrayList<Long>(Arrays.asList(1L, 2L))", "ArrayList", "long", "java", [1, 2]),
        ("new ArrayList<>()", "ArrayList", "long", "java", []),
        ('new HashMap<String, Integer>() {{ put("a", 1); put("b", 2); }}', "HashMap", "", "java",
         {"a": 1, "b": 2}),
        ("new HashMap<>()", "HashMap", "", "java", {}),
        ("names", "ArrayList", "String", "java", "names"),
        ("'a'", "String", "", "javascript", "a"),
        ("a", "String", "", "javascript", "a"),
        ("12n", "Bigint", "", "javascript", 12),
        ("[1, 2.5]", "array", "float", "javascript", [1.0, 2.5]),
        ("new Array('a', b)", "array", "String", "javascript", ["a", "b"]),
        ("{a: [1, 'x'], \"b\": true}", "dict", "", "javascript", {"a": [1, "x"], "b": True}),
        ("[[1, 2], [3]]", "array", "array", "javascript", [[1, 2], [3]]),
        ("[1, 2", "array", "float", "javascript", "[1, 2"),
    ],
)  # fmt: skip
def test_literals_of_other_languages(text, kind, inner, language, value):
    read = literal(text, kind, inner, language)
    assert (read, type(read)) == (value, type(value))
    if not isinstance(value, str):
        assert literal(spelt(value, kind, language), kind, inner, language) == value


@pytest.mark.parametrize(
    "text", ["f(", "f", "1 + 1", "[f(), 3]", "f(**x)", "f(1, 2)", "(" * 5_000, "f(" * 3_000, ""]
)
def test_what_is_no_call_of_python_is_none(text):
    assert python_calls(text, {"f": ["a"]}) in (None, [])


def test_arguments_of_python_calls_are_json_or_their_text():
    (call,) = python_calls("f(a=(1, 2), b=None, c=x.y, d={1, 2}, e=-3)", {})
    assert call.arguments == {"a": [1, 2], "b": None, "c": "x.y", "d": "{1, 2}", "e": -3}


@pytest.fixture
def published():
    """The folder of the leaderboard's files."""
    project = Path(__file__).parents[4]
    folder = Path(os.environ.get("LUDIC_DATA_DIR", project.parent / "shared" / "data")) / "bfcl"
    if not folder.is_dir():
        pytest.skip(f"needs the original data in {folder}; set LUDIC_DATA_DIR")
    return folder


@pytest.mark.long
@pytest.mark.parametrize("category", CATEGORIES)
def test_the_oracle_wins_every_published_row_and_a_refusal_none_that_wants_calls(
    published, category
):
    env = BFCLEnv(str(published), category)
    refused = 0.0
    for row in range(env.num_rows):
        env.reset(seed=0, options={"row": row})
        assert env.step(env.best_action())[1] == 1, row
        env.reset(seed=0, options={"row": row})
        refused += env.step("I am sorry, I cannot do that.")[1]
    assert refused == (env.num_rows if category in NO_CALL else 0)


@pytest.fixture
def checker():
    """The published program, without the model handlers that it imports."""
    pytest.importorskip("bfcl_eval", reason="pip install --no-deps bfcl-eval")
    models = types.ModuleType("bfcl_eval.constants.model_config")
    models.MODEL_CONFIG_MAPPING = {"any": types.SimpleNamespace(underscore_to_dot=True)}
    sys.modules[models.__name__] = models
    from bfcl_eval.constants.enums import Language
    from bfcl_eval.eval_checker.ast_eval.ast_checker import ast_checker

    languages = {"simple_java": Language.JAVA, "simple_javascript": Language.JAVASCRIPT}

    def is_right(asked, calls):
        found = [{plain_name(call.name): dict(call.arguments)} for call in calls]
        language = languages.get(asked.category, Language.PYTHON)
        functions, answers = list(asked.functions), list(asked.answers)
        verdict = ast_checker(functions, found, answers, language, asked.category, "any")
        return verdict["valid"]

    return is_right


def another(value, rng):
    """The value, or one that differs a little."""
    if isinstance(value, bool):
        return rng.choice([not value, str(value), int(value)])
    if isinstance(value, int):
        return rng.choice([value + 1, -value, str(value), value + 0.5, [value], value])
    if isinstance(value, float):
        return rng.choice([value + 1, str(value), int(value), value])
    if isinstance(value, str):
        forms = [value.upper(), f"{value}x", f" {value}", value.replace(" ", "-"), "", value[1:], 5]
        return rng.choice([*forms, [value], value.replace("'", '"')])
    if isinstance(value, list):
        return rng.choice([value[::-1], value[:-1], [another(one, rng) for one in value], "list"])
    if value is None:
        return ""
    names = list(value) or [""]
    return {**value, rng.choice([*names, "other"]): another(value.get(names[0], 1), rng)}


def mutated(calls, rng):
    """The calls with one more, one less, in another order, or with another argument."""
    calls, kind = copy.deepcopy(calls), rng.randrange(7)
    if kind < 3:
        rng.shuffle(calls)
        return [calls[:-1], [*calls, calls[0]], calls][kind]
    place = rng.randrange(len(calls))
    arguments = dict(calls[place].arguments)
    if names := list(arguments):
        name = rng.choice(names)
        arguments[name] = another(arguments[name], rng)
        if kind == 3:
            del arguments[name]
    if kind == 4:
        arguments["other"] = 1
    calls[place] = Call(calls[place].name if rng.random() < 0.95 else "other", arguments)
    return calls


# Java's and JavaScript's differ where the page says so.
@pytest.mark.long
@pytest.mark.parametrize(
    "category", sorted({*CATEGORIES} - {*NO_CALL, *ANY_CALL, "simple_java", "simple_javascript"})
)
def test_verdicts_are_those_of_the_published_program(published, checker, category):
    rng, counts = random.Random(0), {True: 0, False: 0}
    for row in answered_rows(published, category):
        asked = _question(row)
        right = [right_call(answer, asked.functions, category) for answer in asked.answers]
        if not checker(asked, right):
            # The four rows that no call can answer there.
            assert category in ("live_simple", "live_multiple")
            continue
        for calls in [right, *(mutated(right, rng) for _ in range(6))]:
            problem = problem_of_calls(calls, asked.functions, asked.answers, category)
            assert (not problem) == checker(asked, calls), (row.fields["id"], calls, problem)
            counts[not problem] += 1
    assert min(counts.values()) > 15


def test_sentences_that_name_functions_call_nothing():
    for text in ("price is no help here.", "I would need [the city].", "{x}?"):
        assert read_calls(text, [WEATHER, PRICE])[0] == []
    assert read_calls("price is no help here.", [WEATHER, PRICE]) == ([], "")


def test_the_catalogue_knows_both():
    assert {"ludic/BFCL-v0", "ludic/BFCL-MultiTurn-v0"} <= gym.registry.keys()
