"""The tutorials about training models, with a tiny model and little to do."""

import json
import re
import shlex
import signal
import subprocess
import time
from contextlib import contextmanager
from urllib.request import urlopen

import forked
import pytest
from test_docs import ROOT, blocks, shell_lines

import ludic_gym as lg

lt = pytest.importorskip("ludic_train", reason="the tutorials train")

TUTORIALS = ROOT / "docs" / "tutorials"
GSM8K, EIGHT, MIGRATION = (
    TUTORIALS / f"{name}.md" for name in ("gsm8k", "eight-gpus", "migration-trainers")
)
SAMPLE = ROOT / "ludic_gym" / "envs" / "data" / "gsm8k_sample.jsonl"
MODEL = "Qwen/Qwen2.5-0.5B-Instruct"
LESS = "--updates 2 --groups 2 --group-size 4 --max-tokens 24 --eval-every 1 --eval-episodes 3"
LESS += " --final-episodes 3"
# An untrained model ends few replies, and writes a digit in some: a difference to learn from.
LEARNABLE = "--parser last-number --cut-off keep --format-bonus 0.1"
FEW_DEMONSTRATIONS = "--demonstrations 130 --sft-updates 1"
# Qwen2.5-7B's shapes.
SEVEN = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with a tiny model, and the bundled rows in two splits."""
    path = tmp_path_factory.mktemp("gsm8k")
    lines = SAMPLE.read_text().splitlines(keepends=True)
    (path / "data").mkdir()
    (path / "data" / "train.jsonl").write_text("".join(lines[:40]))
    (path / "data" / "test.jsonl").write_text("".join(lines[40:]))
    tokenizer = lt.make_tokenizer([line[:120] for line in lines])
    lt.save_model(lt.make_tiny_model(tokenizer), tokenizer, path / "model")
    return path


def ludic(words, folder, **options):
    return forked.run(["-m", "ludic_gym", *words], cwd=folder, timeout=300, **options)


def ran(words, folder):
    done = ludic(words, folder)
    assert done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@contextmanager
def running(words, folder):
    """The program, and the address in its first line."""
    program = forked.Python(
        ["-m", "ludic_gym", *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        line = program.stdout.readline()
        address = re.search(r"http://[\d.:]+", line)
        assert address is not None, line + program.stdout.read()
        yield address[0]
    finally:
        program.kill()
        program.communicate()


def with_own_rows(words):
    """The command, with rows from a file in place of the hub's, as the page says."""
    own = ["split=test", "data=data"]
    words = [w for word in words for w in (own if word == "split=test" else [word])]
    if words[0] == "train" and "gsm8k" in words:
        words += ["--env-kwargs", "data=data", "--eval-kwargs", "data=data"]
    return ["model" if word == MODEL else word for word in words]


def lines_of(page, *beginning):
    """Arguments of the page's commands that begin so, after `ludic`."""
    lines = [words[1:] for words in shell_lines(page) if words[0] == "ludic"]
    return [words for words in lines if words[: len(beginning)] == list(beginning)]


def test_the_first_look_of_the_gsm8k_tutorial_names_what_the_page_explains(folder):
    (first, *_) = lines_of(GSM8K, "train", "gsm8k")
    out = ["--out", "runs/hopeless"]
    done = ludic([*with_own_rows(first), *shlex.split(LESS), *out], folder)
    assert done.returncode != 0
    assert "(--no-preflight starts anyway)" in done.stderr
    (shown,) = [b.text for b in blocks(GSM8K) if b.language == "text"]
    look = done.stdout[done.stdout.index("first look:") :]
    # The numbers are those of one machine and one model.
    for line in shown.splitlines():
        pattern = re.sub(r"\d[\d,.]*", r"\\S+", re.escape(line).replace(r"\.", "."))
        assert re.search(pattern, look), line
    page = GSM8K.read_text()
    for option in ("--parser last-number", "--max-tokens", "--demonstrations", "--system-prompt"):
        assert option in look
        assert option in page


@pytest.mark.slow
def test_the_commands_of_the_gsm8k_tutorial_work_one_after_the_other(folder):
    done = []
    (serve,) = lines_of(GSM8K, "serve")
    (before,) = [w for w in lines_of(GSM8K, "bench") if "results/before" in w]
    short = ["--max-tokens", "24"]
    with running([*with_own_rows(serve), "--port", "0"], folder) as url:
        words = [f"{url}/v1" if w.startswith("http") else w for w in with_own_rows(before)]
        ran([*words, *short], folder)
    done += [serve, before]
    for words in lines_of(GSM8K):
        if words in done:
            continue
        own = with_own_rows(words)
        if words[0] == "train" and words[1] == "gsm8k":
            few = FEW_DEMONSTRATIONS if "--demonstrations" in words else ""
            ran([*own, *shlex.split(f"{LEARNABLE} {LESS} {few}")], folder)
        elif words[0] == "bench":
            ran([*own, *short], folder)
        elif "--serve" in words:
            with running([*own, "--port", "0"], folder) as url, urlopen(url, timeout=60) as page:
                assert "eval/test/success" in page.read().decode()
        elif words[0] == "compare":
            assert "ludic/GSM8K-v0" in ran(own, folder)
        else:
            ran(own, folder)
        done.append(words)
    assert {words[0] for words in done} == {"serve", "bench", "view", "train", "compare"}
    assert (folder / "comparison.html").is_file()
    spec = json.loads((folder / "runs" / "gsm8k" / "results.json").read_text())
    assert 0 <= spec["test/success"] <= 1


def test_a_run_of_the_gsm8k_tutorial_that_is_stopped_continues(folder):
    (first, *_) = lines_of(GSM8K, "train", "gsm8k")
    # Far more updates than there is time for.
    options = f"{LEARNABLE} {LESS} --updates 100000 --eval-every 5 --out runs/stopped"
    words = [*with_own_rows(first), *shlex.split(options)]
    program = forked.Python(
        ["-m", "ludic_gym", *words], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    checkpoints = folder / "runs" / "stopped" / "checkpoints"
    deadline = time.monotonic() + 200
    while not list(checkpoints.glob("step_*")) and program.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.2)
    program.send_signal(signal.SIGINT)
    printed, _ = program.communicate(timeout=200)
    assert "resume with: ludic train --out runs/stopped --resume" in re.sub(
        r"\S+/ludic", "ludic", printed
    )


def test_every_training_command_of_the_eight_gpus_tutorial_is_understood():
    from ludic_train.commands.train import parsed

    console = [b.text for b in blocks(EIGHT) if b.language == "console"]
    lines = [shlex.split(line) for text in console for line in text.splitlines()]
    commands = [words[words.index("ludic") + 1 :] for words in lines]
    commands += lines_of(EIGHT)
    # `ludic launch` passes what is after "--" to `ludic train`.
    commands += [
        ["train", words[1], *words[words.index("--") + 1 :]] for words in commands if "--" in words
    ]
    found = [words[1:] for words in commands if words[0] == "train" and words[1] != "--plan"]
    assert len(found) == 5
    for words in found:
        settings = parsed(words[:1], words[1:]).settings
        assert settings.mode == "full"


@pytest.mark.slow
def test_the_plans_of_the_eight_gpus_tutorial_are_those_that_are_printed(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(SEVEN))
    plans = lines_of(EIGHT, "train", "--plan")
    shown = [b.text for b in blocks(EIGHT) if b.language == "text"]
    for words, text in zip(plans, shown, strict=True):
        assert ran([*words[:2], str(tmp_path), *words[3:]], tmp_path) == text


@pytest.fixture(scope="module")
def programs(tmp_path_factory, folder):
    """A folder with the programs of the page about TRL and verifiers."""
    path = tmp_path_factory.mktemp("migration")
    for block in blocks(MIGRATION):
        if block.language == "python":
            (path / block.file).write_text(block.text)
    return path


SMALL = (
    "updates=1, groups=2, group_size=4, max_tokens=8, eval_episodes=2, final_episodes=2, "
    'algo="reinforce", cut_off="keep", preflight=False, out="runs/it"'
)


@pytest.mark.parametrize("file", ["train_sums.py", "trl_rewards.py"])
def test_the_programs_in_place_of_trl_train(file, folder, programs):
    program = f"""
import sys, {file[:-3]} as page, ludic_train as lt
train = lt.train
lt.train = lambda *a, **k: train(*a, **{{**k, **dict(model={str(folder / "model")!r}, {SMALL})}})
found = page.train()
assert 0 <= found["test/success"] <= 1
"""
    done = forked.run(["-c", program], cwd=programs, timeout=300)
    assert done.returncode == 0, done.stderr
    (programs / "runs" / "it").rename(programs / "runs" / file)


def test_the_command_in_place_of_trl_trains(folder, programs):
    for words in lines_of(MIGRATION):
        own = with_own_rows(words) if words[0] == "train" else words
        own = [str(folder / "model") if word == "model" else word for word in own]
        if words[0] == "train":
            own = [w for w in own if w != "data=data"]
            own += shlex.split(f"{LEARNABLE} {LESS}")
        ran(own, programs)


class Halves:
    """Guesses the middle of what is left."""

    def reset(self, system_prompt):
        self.low, self.high = 0, 99

    def observe(self, text):
        if text == "larger":
            self.low = self.guess + 1
        elif text == "smaller":
            self.high = self.guess - 1
        self.guess = (self.low + self.high) // 2

    async def act(self, sampling):
        return lg.Decision(action=str(self.guess))


async def test_the_guessing_game_can_be_won(programs, monkeypatch):
    monkeypatch.syspath_prepend(str(programs))
    tasks = [lg.Task(env_id="guess:mine/Guess-v0", seed=seed) for seed in range(20)]
    result = await lg.run_bench(tasks, lambda env: Halves())
    assert result.successes == 20, result.errors


@pytest.mark.long
def test_blackjack_is_learned_from_random_play(tmp_path):
    page = TUTORIALS / "gymnasium-environments.md"
    (program,) = [block.text for block in blocks(page) if block.file == "train_blackjack.py"]
    (tmp_path / "train_blackjack.py").write_text(program)
    done = forked.run(["train_blackjack.py"], cwd=tmp_path, timeout=300)
    assert done.returncode == 0, done.stderr
    first, last = map(float, re.search(r"^(-[\d.]+) -> (-[\d.]+)$", done.stdout, re.M).groups())
    # Of 256 and of 1,000 hands: standard errors of 0.06 and 0.03, around -0.45 and -0.15.
    assert first < -0.25 < last
