"""Addresses, users, encryption and lost connections of a Redis queue."""

import asyncio
import os
import shutil
import subprocess
import traceback

import pytest
from faulty_network import BACK, Network
from queue_calls import ACTOR, FRESH, read, take_over
from redis_server import PROGRAM, RedisServer, free_port, needs_redis, speaks_tls

from ludic_gym.errors import ConfigError
from ludic_train.cluster.queues import redis_queue
from ludic_train.cluster.queues.base import Progress, Trained
from ludic_train.cluster.queues.open_queue import open_queue
from ludic_train.cluster.queues.redis_queue import RedisQueue
from ludic_train.cluster.queues.retry import retry
from ludic_train.cluster.roles import ProcessGroup, start_redis
from ludic_train.commands import actor, launch, status, train
from ludic_train.errors import QueueError, QueueUnavailable
from ludic_train.queue_urls import PASSWORD_VARIABLE

pytestmark = needs_redis


@pytest.fixture
def encrypted(tmp_path):
    """A server that speaks TLS, and the URL of it."""
    if shutil.which("openssl") is None or PROGRAM is None or not speaks_tls():
        pytest.skip("there is no openssl here, or a redis-server without TLS")
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -keyout key.pem -out cert.pem"
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
    subprocess.run(
        ["openssl", *words.split(), *names], cwd=tmp_path, check=True, capture_output=True
    )
    cert, port = tmp_path / "cert.pem", free_port()
    tls = ["--tls-port", str(port), "--tls-cert-file", str(cert), "--tls-auth-clients", "no"]
    server = RedisServer(tmp_path, *tls, "--tls-key-file", str(tmp_path / "key.pem"))
    yield server, f"rediss://localhost:{port}/0?ssl_ca_certs={cert}"
    server.stop()


async def test_a_password_and_a_database_stand_in_the_url(made, tmp_path):
    server = RedisServer(tmp_path, "--requirepass", "pa:ss")
    try:
        good = made(f"redis://:pa%3Ass@127.0.0.1:{server.port}/3")
        await good.push("a", b"a")
        for wrong in ("", ":other@"):
            queue = made(f"redis://{wrong}127.0.0.1:{server.port}/3")
            with pytest.raises(QueueError, match="user and password") as refused:
                await queue.push("b", b"b")
            assert not isinstance(refused.value, QueueUnavailable)
        assert (await made(f"redis://:pa%3Ass@127.0.0.1:{server.port}/2").status()).queued == 0
        assert (await good.status()).queued == 1
    finally:
        server.stop()


CALLS = {
    "admit": lambda queue: queue.admit(ACTOR, 1),
    "push": lambda queue: queue.push("a", b"a"),
    "read": lambda queue: queue.read(1),
    "status": lambda queue: queue.status(),
}


@pytest.mark.parametrize("name", CALLS)
async def test_a_loop_of_calls_that_is_cancelled_at_any_moment_ends(made, name):
    queue = made()
    await take_over(queue)

    async def repeated():
        while True:
            await CALLS[name](queue)

    # Each is cancelled one step of the event loop later than the one before.
    for steps in range(60):
        task = asyncio.create_task(repeated())
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=10)
        assert done, f"it went on after {steps} steps"


async def test_a_password_comes_from_the_environment_or_an_argument(made, tmp_path, monkeypatch):
    # As `ludic launch` has it.
    group = ProcessGroup(tmp_path, os.environ)
    try:
        url = start_redis(group, tmp_path / "data")
        password = group.env[PASSWORD_VARIABLE]
        assert password not in " ".join([url, *group.roles[0].process.args])
        assert (tmp_path / "data" / "redis.conf").stat().st_mode & 0o777 == 0o600
        with pytest.raises(QueueError, match="user and password"):
            await made(url).push("a", b"a")
        given = open_queue(url, "k", password=password)
        await given.push("a", b"a")
        await given.aclose()
        monkeypatch.setenv(PASSWORD_VARIABLE, password)
        known = open_queue(url, "k")
        assert (await known.status()).queued == 1
        await known.aclose()
    finally:
        group.stop()


@pytest.mark.parametrize(
    "url",
    ["redis://:secret@host/0", "rediss://me:sec#ret@host", "redis://host/0?db=1&password=secret"],
)
@pytest.mark.parametrize(
    ("command", "words"),
    [
        (actor.main, ["runs/x", "--queue"]),
        (launch.main, ["tic-tac-toe", "--queue"]),
        (train.main, ["tic-tac-toe", "--queue"]),
        (status.main, []),
    ],
)
def test_a_command_refuses_a_password_that_everybody_could_see(url, command, words):
    with pytest.raises(ConfigError, match=f"leave it out, and set {PASSWORD_VARIABLE}") as refused:
        command([*words, url])
    assert "sec" not in str(refused.value)


async def test_a_user_who_may_only_touch_the_queue_is_enough(made, tmp_path):
    rule = "user actor on >p@:/?#ss ~{jobs}:* -@all +@stream +@hash +@list +@string +@keyspace "
    rule += "+@sortedset +@scripting +@transaction +@connection +info +time"
    (tmp_path / "acl").write_text(f"user default off\n{rule}\n")
    server = RedisServer(tmp_path, "--aclfile", str(tmp_path / "acl"))
    try:
        url = f"redis://actor:p%40%3A%2F%3F%23ss@127.0.0.1:{server.port}/3"
        queue = RedisQueue(url, "jobs")
        await take_over(queue)
        assert (await queue.admit(ACTOR, 4)).granted == 4
        await queue.push("a", b"a")
        (entry,) = await queue.read(1)
        await queue.attempt([entry])
        done = [Trained(id=entry.id, key="a", lag=0)]
        await queue.settle(Progress(trainer=FRESH, trained=done, held=1, total=1, retired=["t"]))
        assert (await queue.admit(ACTOR, 0)).retired == ("t",)
        await queue.push("b", b"b")
        await queue.discard((await queue.read(1))[0], "dead", "no group")
        assert [letter.key for letter in await queue.dead_letters()] == ["b"]
        assert (await queue.status()).counts == {"trained": 1, "dead": 1}
        await queue.leave("one")
        with pytest.raises(QueueError, match=r"Redis refused: .*permission"):
            await made(url).push("a", b"a")
        await queue.aclose()
    finally:
        server.stop()


async def test_a_server_on_this_machine_may_be_reached_by_its_socket(made, tmp_path):
    socket = tmp_path / "redis.sock"
    server = RedisServer(tmp_path, "--unixsocket", str(socket), "--requirepass", "p@ss")
    try:
        queue = made(f"unix://:p%40ss@{socket}?db=3")
        await queue.push("a", b"a")
        assert (await queue.status()).queued == 1
        assert (await made(f"redis://:p%40ss@127.0.0.1:{server.port}/3").status()).queued == 1
        assert (await made(f"redis://:p%40ss@127.0.0.1:{server.port}/0").status()).queued == 0
    finally:
        server.stop()


async def test_the_connection_may_be_encrypted(made, encrypted):
    _, url = encrypted
    queue = made(url)
    await queue.push("a", b"a")
    assert (await queue.status()).queued == 1
    with pytest.raises(QueueUnavailable, match="certificate"):
        await made(url.partition("?")[0]).push("b", b"b")


async def test_a_server_that_says_no_goodbye_lets_a_trainer_end(encrypted, monkeypatch):
    monkeypatch.setattr(redis_queue, "TIMEOUT_S", 1.5)
    server, url = encrypted
    queue = RedisQueue(url, "k")
    await queue.push("a", b"a")
    server.pause()
    await asyncio.wait_for(queue.aclose(), 60)
    server.kill()
    # The event loop needs a moment to notice that the connection has ended and to release it.
    await asyncio.sleep(0.5)


async def test_a_read_whose_answer_was_cut_off_is_not_repeated_in_silence(made, redis_server, key):
    network = Network(redis_server.port)
    await network.start()
    near = made()
    far = RedisQueue(network.url, key)
    await take_over(far)
    for key in "abc":
        await near.push(key, b"")
    assert [entry.key for entry in await far.read(1)] == ["a"]
    network.cut_after(BACK, 10)
    with pytest.raises(QueueUnavailable):
        await far.read(5)
    assert [entry.key for entry in await read(far, 2)] == ["b", "c"]
    await far.aclose()
    await network.close()


async def test_a_link_that_is_slower_than_a_batch_still_brings_all_groups(
    made, redis_server, key, monkeypatch
):
    # 12 groups of 150 kB at 600 kB/s: all at once would take 3 s, and the limit of a request is
    # 1.2 s.
    monkeypatch.setattr(redis_queue, "TIMEOUT_S", 1.2)
    network = Network(redis_server.port, rate=600_000)
    await network.start()
    near = made()
    far = RedisQueue(network.url, key)
    await take_over(far)
    for number in range(12):
        await near.push(f"g{number}", bytes(150_000))
    found = []
    async with asyncio.timeout(60):
        while len(found) < 12:
            found += await retry(lambda: far.read(64))
    assert [entry.key for entry in found] == [f"g{number}" for number in range(12)]
    # The push of an actor that takes 1.5 seconds.
    await far.push("long", bytes(900_000))
    await take_over(near, kept=found[-1].id, total=12)
    assert [entry.key for entry in await near.read(1)] == ["long"]
    await far.aclose()
    await network.close()


@pytest.mark.parametrize("url", ["http://localhost", "localhost:6379"])
def test_a_url_that_names_no_queue_is_refused(url):
    with pytest.raises(QueueError, match="names no queue"):
        open_queue(url, "k")


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("?socket_timeout=abc", "Invalid value for 'socket_timeout'"),
        ("?timeout=3", "unexpected keyword argument 'timeout'"),
        ("three", "the database 'three' is no number"),
        ("three?db=2", "the database 'three' is no number"),
        ("?decode_responses=true", "remove decode_responses"),
    ],
)
def test_a_url_that_asks_for_what_there_is_not_is_refused(rest, said):
    with pytest.raises(QueueError, match=said):
        open_queue(f"redis://localhost:6379/{rest}", "k")


@pytest.mark.parametrize("sign", ["#", "/", "?"])
def test_a_password_that_breaks_the_url_is_not_quoted(sign):
    with pytest.raises(QueueError, match=r"redis://\.\.\.@host:6379/0.*with %40 for @") as refused:
        open_queue(f"redis://me:sec{sign}ret@host:6379/0", "k")
    said = "".join(traceback.format_exception(refused.value))
    assert "sec'" not in said
    with pytest.raises(QueueError, match=r"'http://\.\.\.@host' names no queue"):
        open_queue(f"http://me:sec{sign}ret@host", "k")


async def test_a_server_that_is_not_there_is_named_as_such(made):
    with pytest.raises(QueueUnavailable, match=r"ConnectionError: .*connecting"):
        await made(f"redis://127.0.0.1:{free_port()}/0").push("a", b"a")
