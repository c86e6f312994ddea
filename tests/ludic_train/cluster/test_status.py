import asyncio
import io
import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest
from fake_vllm.fleet import running
from rich.console import Console

from ludic_gym.commands.main import main
from ludic_train.cluster.queues.base import (
    ActorReport,
    Progress,
    QueueStatus,
    Trained,
    TrainerReport,
)
from ludic_train.cluster.queues.sqlite_queue import SQLiteQueue
from ludic_train.cluster.status import (
    Sample,
    ServerLoads,
    Status,
    next_load,
    next_sample,
    screen,
    statuses,
)
from ludic_train.commands.status import look
from ludic_train.errors import QueueUnavailable


def status(*, trained=0, **actors):
    """Actors by name: (groups, tokens)."""
    reports = [
        ActorReport(name=name, running=2, version=6, groups=groups, tokens=tokens)
        for name, (groups, tokens) in actors.items()
    ]
    return QueueStatus(
        queued=5,
        pending=2,
        held=1,
        counts={"trained": trained, "stale": 3, "dead": 1},
        lags={0: 8, 2: 4},
        actors=reports,
        trainer=TrainerReport(version=7, groups_per_batch=2, group_size=2, max_lag=3),
    )


def shown(sample, width=80):
    console = Console(file=io.StringIO(), width=width)
    console.print(screen(sample, "title"))
    return console.file.getvalue()


def test_rates_are_what_came_between_two_looks():
    before = next_sample(None, status(trained=10, one=(4, 100)), at_s=1.0)
    assert (before.trained_per_s, before.tokens_per_s) == (0, 0)
    now = status(trained=16, one=(5, 160), new=(9, 900))
    after = next_sample(before, now, at_s=3.0)
    # In two seconds: six groups trained on; one group and 60 tokens of actor one.
    assert (after.trained_per_s, after.actors["one"].groups, after.tokens_per_s) == (3.0, 0.5, 30)
    # An actor and a queue that began anew count from 0.
    anew = next_sample(after, status(trained=2, one=(0, 0)), at_s=4.0)
    assert (anew.trained_per_s, anew.tokens_per_s) == (0, 0)


def test_the_screen_says_what_waits_who_plays_and_how_old_groups_were():
    text = shown(Sample(status=status(trained=12, one=(4, 100)), at_s=0))
    for said in (
        r"waiting +│ 3 ",
        r"read ahead +│ 2 ",
        r"trained on +│ 12 ",
        r"too old +│ 3 ",
        r"dead letters +│ 1 ",
        r"trainer +│ version 7 ",
        r"│ one +│ 6 +│ 2 +│ 4 ",
        r"│ 0 +│ 8 +│ █{40} ",
        r"│ 2 +│ 4 +│ █{20} ",
    ):
        assert re.search(said, text), f"{said} in {text}"


def test_names_are_text_whatever_is_in_them():
    sample = Sample(status=status(**{"[b]x[/b]\x1b[2J": (1, 1)}), at_s=0)
    assert "[b]x[/b]?[2J" in shown(sample)
    server = load(version="[b]x[/b]\x1b[2J")
    assert "[b]x[/b]?[2J" in shown(Sample(status=status(), at_s=0, servers=(server,)), width=120)


def test_the_level_of_a_curriculum_is_on_the_screen():
    plain = status()
    trainer = replace(plain.trainer, levels='{"ludic/ConnectFour-v0": 1}')
    sample = Sample(status=replace(plain, trainer=trainer), at_s=0)
    assert re.search(r"level +│ 1 of ludic/ConnectFour-v0 ", shown(sample))
    assert "level" not in shown(Sample(status=plain, at_s=0))


def load(url="http://one:8000", *, at_s=1.0, **state):
    return next_load(None, Status(url=url, **state), at_s)


def test_a_servers_rate_is_what_came_between_two_looks_that_it_answered():
    before = load(version="4", sampled=100)
    assert before.tokens_per_s == 0
    # 60 tokens in two seconds.
    after = next_load(before, replace(before.status, sampled=160), at_s=3.0)
    assert after.tokens_per_s == 30
    silent = next_load(after, Status(url=before.status.url, error="gone"), at_s=4.0)
    begun_anew = next_load(after, replace(before.status, sampled=7), at_s=4.0)
    back = next_load(silent, replace(before.status, sampled=9), at_s=5.0)
    assert (silent.tokens_per_s, begun_anew.tokens_per_s, back.tokens_per_s) == (0, 0, 0)


def test_the_screen_says_what_each_server_is_at_and_which_is_silent():
    one = load(version="12", is_paused=True, running=7, waiting=2, cache=0.25, sampled=100)
    busy = next_load(one, replace(one.status, sampled=160), at_s=3.0)
    silent = load("http://two:8000", error="no answer within 10 s")
    text = shown(Sample(status=status(), at_s=0, servers=(busy, silent)))
    assert "servers, 30 tokens/s" in text
    assert re.search(r"http://one:8000 +│ 12 +│ paused +│ 7 +│ 2 +│ 25% +│ 160 +│ 30 ", text)
    assert re.search(r"http://two:8000 +│ +│ silent ", text)
    assert "http://two:8000: no answer within 10 s" in text
    assert "servers" not in shown(Sample(status=status(), at_s=0))


async def test_a_silent_server_holds_up_no_other():
    async with running(2, {}) as (one, other):
        other.faults["/weight_info"] = "hang"
        loads = ServerLoads([one.url, other.url])
        looking = asyncio.create_task(loads.keep_looking(0.01))
        async with asyncio.timeout(60):
            while not loads.newest[0].status.version:
                await asyncio.sleep(0.01)
        assert [load.status.error for load in loads.newest] == ["", "no answer yet"]
        looking.cancel()


async def test_a_queue_that_does_not_answer_leaves_what_was_seen_last():
    class Away(SQLiteQueue):
        async def status(self):
            raise QueueUnavailable("no answer")

    before, loads = Sample(status=status(trained=12), at_s=0), ServerLoads(["http://one"])
    seen, trouble = await look(Away(), before, loads)
    assert (seen.status, seen.servers) == (before.status, loads.newest)
    assert trouble == "the queue does not respond: no answer"
    assert (await look(SQLiteQueue(), before, loads))[1] == ""


@pytest.fixture
def run_folder(tmp_path):
    """A run whose queue, a file, has seen one group."""

    async def fill():
        queue = SQLiteQueue(tmp_path / "queue.sqlite3")
        trainer = TrainerReport(version=4, groups_per_batch=1, group_size=2, max_lag=3)
        await queue.take_over(trainer, kept="", total=0)
        await queue.push("a", b"")
        (entry,) = await queue.read(1)
        done = Trained(id=entry.id, key="a", lag=1)
        progress = Progress(trainer=trainer, trained=[done], total=1, release=[entry.id])
        await queue.settle(progress)
        await queue.aclose()

    asyncio.run(fill())
    place = {"url": f"file://{tmp_path}/queue.sqlite3", "key": "k"}
    (tmp_path / "queue.json").write_text(json.dumps(place))
    return tmp_path


def test_a_run_is_looked_at_once_by_its_folder_or_its_url(run_folder, capsys):
    for where in ([str(run_folder)], [f"file://{run_folder}/queue.sqlite3", "--key", "k"]):
        assert main(["status", *where]) == 0
        assert re.search(r"trainer +│ version 4 ", capsys.readouterr().out)


def test_a_look_can_be_read_by_a_program(run_folder, capsys):
    assert main(["status", str(run_folder), "--json", "--servers", "http://127.0.0.1:1"]) == 0
    sample = json.loads(capsys.readouterr().out)
    assert sample["status"]["trainer"]["version"] == 4
    assert (sample["status"]["counts"]["trained"], sample["status"]["lags"]) == (1, {"1": 1})
    assert sample["servers"][0]["status"]["error"]


@pytest.mark.long
def test_a_live_look_ends_with_ctrl_c(run_folder):
    words = ["status", str(run_folder), "--interval", "0.1", "--watch", "--json"]
    command = [sys.executable, "-m", "ludic_gym", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        lines = [json.loads(process.stdout.readline()) for _ in range(2)]
        process.send_signal(2)
        _, errors = process.communicate(timeout=60)
    assert [line["status"]["trainer"]["version"] for line in lines] == [4, 4]
    assert (process.returncode, errors) == (130, b"")


def test_a_runs_servers_are_found_in_its_folder_unless_others_are_named(run_folder, capsys):
    path = run_folder / "queue.json"
    found = json.loads(path.read_text())
    path.write_text(json.dumps({**found, "servers": ["http://127.0.0.1:1"]}))
    assert main(["status", str(run_folder)]) == 0
    assert re.search(r"http://127.0.0.1:1 +│ +│ silent ", capsys.readouterr().out)
    assert main(["status", str(run_folder), "--servers", "http://127.0.0.1:2"]) == 0
    text = capsys.readouterr().out
    assert "http://127.0.0.1:2" in text
    assert "http://127.0.0.1:1" not in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["redis://localhost"], "Give --key, or name a run's folder"),
        (["nowhere"], "nowhere is no run with --queue"),
        (["nowhere", "--interval", "0"], "interval=0 s must be above 0"),
        (["nowhere", "redis://localhost"], "name one run or queue"),
        (["http://localhost:8000", "--watch"], "servers are shown once"),
        ([], "name the folder of a run, or the address of a server"),
    ],
)
def test_what_cannot_be_found_or_used_is_named(words, said, capsys):
    assert main(["status", *words]) == 2
    assert said in capsys.readouterr().err


NOBODY = "http://127.0.0.1:1"


async def test_a_servers_version_and_load_are_added_up_over_its_engines():
    async with running(1, {}) as (server,):
        server.version, server.paused = "12", True
        assert await statuses([f"{server.url}/v1"]) == [
            Status(
                url=server.url,
                version="12",
                is_paused=True,
                running=7,
                waiting=2,
                cache=0.25,
                sampled=12345,
            )
        ]


async def test_a_server_that_does_not_answer_hides_no_other():
    async with running(1, {}) as (server,):
        missing, found = await statuses([NOBODY, server.url])
    assert "ClientConnectorError" in missing.error
    assert found.error == ""


@pytest.mark.parametrize(
    "answers",
    [
        {"/weight_info": {}},
        {"/metrics": "vllm:x one"},
        {"/metrics": "vllm:num_requests_running inf"},
    ],
)
async def test_a_server_that_answers_otherwise_is_shown_so(answers):
    async with running(1, {}) as (server,):
        server.answers = answers
        (found,) = await statuses([server.url])
    assert "its responses differ from vLLM" in found.error


async def test_the_command_prints_a_row_each_and_its_code_says_if_one_is_missing(capsys):
    async with running(1, {}) as (server,):
        assert await asyncio.to_thread(main, ["status", server.url]) == 0
        assert await asyncio.to_thread(main, ["status", server.url, NOBODY]) == 1
    text = capsys.readouterr().out
    assert (text.count("serving"), text.count("silent")) == (2, 1)
    assert f"{NOBODY}: " in text


def test_the_states_are_printed_as_json(capsys):
    assert main(["status", NOBODY, "--json"]) == 1
    (state,) = json.loads(capsys.readouterr().out)
    assert (state["url"], bool(state["error"])) == (NOBODY, True)
