"""Sweeps: several models on the same tasks, of which any may fail."""

import json

import pytest
from chat_server import MODELS, chat_server, completion

from ludic_gym.bench.folder import read_request
from ludic_gym.commands.main import main
from ludic_gym.commands.sweep_file import folder_name, parse_sweep
from ludic_gym.errors import ConfigError

SUMS = "ludic/Arithmetic-v0"


def by_model(**texts):
    """A server whose models give a text each; the others are refused."""

    def respond(path, headers, body):
        if body is None:
            return 200, MODELS
        if body["model"] not in texts:
            return 404, {"error": {"message": f"The model {body['model']} does not exist."}}
        return 200, completion(texts[body["model"]], body["model"])

    return respond


def models(*names):
    return [word for name in names for word in ("--model", name)]


def bench(capsys, *words):
    code = main(["bench", *words])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_one_model_that_fails_costs_only_itself(capsys, tmp_path):
    with chat_server(by_model(small="5", large="5")) as server:
        words = [SUMS, "--episodes", "6", "--policy", server.url, "--out", str(tmp_path / "out")]
        names = models("small", "absent", "large")
        code, out, err = bench(capsys, *words, *names)
    assert code == 1
    title, _, first, second, missing, *lines = out.splitlines()
    assert title.strip() == f"{SUMS}: difference from small"
    assert first.split()[:3] == ["small", "1", "6"]
    assert second.split()[:3] == ["large", "1", "6"]
    assert missing.split() == ["absent", "-", "0", "-", "-", "-", "-", "-"]
    assert any(line.startswith("absent: ") and "no model 'absent'" in line for line in lines)
    assert "[2/3] absent" in err
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["large", "small"]
    assert read_request(tmp_path / "out" / "large")["model"] == "large"


def test_the_same_command_plays_what_is_missing(capsys, tmp_path):
    words = [SUMS, "--episodes", "6", "--out", str(tmp_path)]
    with chat_server(by_model(small="5")) as server:
        policy = ["--policy", server.url]
        bench(capsys, *words, *policy, *models("small", "large"))
        before = len(server.requests)
        server.respond = by_model(small="5", large="5")
        code, _, _ = bench(capsys, *words, *policy, *models("small", "large"))
        again = [body["model"] for body in server.requests[before:]]
    assert code == 0
    # Of each a probe, and of the finished one nothing else.
    assert (again.count("small"), again.count("large")) == (1, 7)


def test_differences_are_paired_with_the_first_run(capsys, tmp_path):
    config = tmp_path / "sweep.toml"
    config.write_text(
        f'envs = ["{SUMS}"]\nepisodes = 10\n'
        '[[runs]]\npolicy = "random"\n[[runs]]\nname = "best"\npolicy = "oracle"\n'
    )
    code, out, _ = bench(capsys, "--config", str(config), "--json")
    found = json.loads(out)
    (board,) = found["boards"]
    best, random = board["runs"]
    assert code == 0
    assert (board["baseline"], best["name"], best["rank"], random["rank"]) == (
        "random",
        "best",
        1,
        2,
    )
    assert (best["difference"]["difference"], best["difference"]["p_value"]) == (1.0, 2 / 2**10)
    assert random["difference"] is None
    assert found["runs"]["best"]["results"][SUMS]["successes"] == 10


def test_a_model_that_changes_during_the_run_keeps_the_episodes_before(capsys, tmp_path):
    count = 0

    def respond(path, headers, body):
        nonlocal count
        count += body is not None
        return (200, MODELS) if body is None else (200, completion("5", "a" if count < 5 else "b"))

    with chat_server(respond) as server:
        words = ["--policy", server.url, *models("small", "large"), "--concurrency", "1"]
        code, out, _ = bench(capsys, SUMS, "--episodes", "6", *words, "--json")
    runs = json.loads(out)["runs"]
    assert code == 1
    assert "the server's model is 'b' now, and was 'a'" in runs["small"]["failure"]
    assert runs["small"]["results"][SUMS]["episodes"] >= 3
    assert (runs["large"]["failure"], runs["large"]["results"][SUMS]["episodes"]) == ("", 6)


def test_options_replace_those_of_the_file(capsys, tmp_path):
    config = tmp_path / "one.toml"
    config.write_text(f'envs = ["{SUMS}"]\nepisodes = 10\npolicy = "oracle"\n')
    code, out, _ = bench(capsys, "--config", str(config), "--episodes", "2", "--json")
    assert (code, json.loads(out)["results"][SUMS]["episodes"]) == (0, 2)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("episods = 3", r"the config has no setting 'episods'; did you mean 'episodes'\?"),
        (
            "[[runs]]\ntemprature = 0",
            r"\[\[runs\]\] has no setting 'temprature'; did you mean",
        ),
        ("[[runs]]\nseed = 1", r"\[\[runs\]\] has no setting 'seed'"),
        ('episodes = "3"', "episodes = '3'; expected int"),
        ("seed = true", "seed = True; expected int"),
        ("temperature = 'hot'", "temperature = 'hot'; expected float"),
        ("price = [1.0]", r"price = \[1.0\]; expected a list of 2"),
        ("envs = 3", "envs = 3; expected a list"),
        ("runs = 3", r"runs = 3; write a table \[\[runs\]\]"),
        ("[[runs]]\nname = 3", r"\[\[runs\]\] name = 3"),
        ('[[runs]]\nmodel = ["a", "b"]', "has one model, got a b"),
        ("envs = [", "no TOML"),
    ],
)
def test_files_that_cannot_work_are_refused(text, why):
    with pytest.raises(ConfigError, match=why):
        parse_sweep(text)


def test_tables_stand_for_pairs_and_for_json():
    args, (run,) = parse_sweep(
        'envs = "games"\nenv-kwargs = {digits = 3}\nout = "x"\n[[runs]]\nname = "r"\n'
        'param = {max_tokens = "none"}\nextra_body = {reasoning = {effort = "low"}}\nprice = [1, 2]'
    )
    assert (args.ids, args.env_kwargs, args.out.name) == (("games",), ("digits=3",), "x")
    assert run.settings == {
        "param": ('max_tokens="none"',),
        "extra_body": '{"reasoning": {"effort": "low"}}',
        "price": (1.0, 2.0),
    }


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ([SUMS, *models("a/b", "a-b")], "two of the compared runs are called"),
        ([SUMS, *models("vllm/a", "vllm/b"), "--temperature", "-1"], "temperature"),
        (["ludic/Arithmetik-v0", *models("vllm/a", "vllm/b")], "Arithmetic"),
        (["--repeat", "x.jsonl:1", *models("a", "b")], "x.jsonl"),
        (["--config", "absent.toml"], "cannot read the config absent.toml"),
    ],
)
def test_mistakes_in_what_all_runs_share_end_the_sweep_at_once(capsys, words, why):
    code, out, err = bench(capsys, *words)
    assert (code, out) == (2, "")
    assert why in err


def test_the_folder_of_one_run_is_refused(capsys, tmp_path):
    bench(capsys, SUMS, "--episodes", "1", "--out", str(tmp_path))
    code, _, err = bench(capsys, SUMS, *models("vllm/a", "vllm/b"), "--out", str(tmp_path))
    assert (code, "holds one run; name another folder" in err) == (2, True)


def test_ctrl_c_prints_what_has_ended(capsys, monkeypatch, tmp_path):
    source = "def make(env):\n    raise KeyboardInterrupt\n"
    (tmp_path / "impatient.py").write_text(source)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "sweep.toml").write_text(
        f'envs = ["{SUMS}"]\nepisodes = 3\n'
        + "".join(f'[[runs]]\npolicy = "{p}"\n' for p in ("oracle", "impatient:make", "random"))
    )
    code, out, err = bench(capsys, "--config", "sweep.toml")
    _, _, first, second = out.splitlines()
    assert code == 130
    assert first.split()[:3] == ["oracle", "1", "3"]
    assert second.split()[:3] == ["impatient:make", "-", "0"]
    assert "[3/3]" not in err


def test_names_of_folders_lead_nowhere_else():
    assert folder_name("../a b/ü:1") == "..-a-b-ü-1"
    assert folder_name("..") == "-"
