"""Speed of publishing: seconds and MB/s per publisher, beside copies and plain transfers.

    python benchmarks/publish.py [--python PATH] [--shapes 135M] [--repeats 5]

Limits: a copy in memory, a plain TCP connection, the least that a push by shared memory takes, a
plain write of a file, and vLLM's own reload of params in its memory. The wires alone: params are
packed, sent, received and unpacked by another thread. A folder. Then the local engine in a process
of its own, and with --python the vLLM of that Python on the CPU: every publisher pushes to them,
the swap included. Seconds are medians of `repeats`, of the wall and of the CPU, the latter of this
process and the server together. "of it loop" is the main thread of vLLM's worker, which looks for
requests without a pause for a second after each. The last column divides CPU seconds by those of
the copy. Compare ratios, not absolutes.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from harness.servers import cpu_seconds, local_server, loop_seconds, vllm_server
from harness.shapes import SHAPES, random_model
from rich.console import Console
from rich.table import Table
from torch import nn
from transformers import PreTrainedModel

from ludic_train.cluster.publish.folder import FolderPublisher
from ludic_train.cluster.publish.lora import LoRAPublisher
from ludic_train.cluster.publish.reload import ReloadPublisher
from ludic_train.cluster.publish.shared_memory import SharedBuffers
from ludic_train.cluster.publish.tcp import TcpWire
from ludic_train.cluster.publish.transports import SHARED_MEMORY, FileWire
from ludic_train.cluster.publish.vllm import VLLMPublisher
from ludic_train.cluster.servers.process import ServerProcess
from ludic_train.disk import write_all
from ludic_train.models.load import load_model, save_model
from ludic_train.models.tokenizer import make_tokenizer
from ludic_train.sources.publisher import PolicyPublisher
from ludic_vllm.receiver import Receiver, Trainer
from ludic_vllm.relay import Arriving, Key
from ludic_vllm.wire import checksum, copy_bytes, mapped, packed

CHUNK_BYTES, LORA_RANK = 64 * 2**20, 16
# Publications that do not count.
WARM_UP = 2
VLLM_LOAD = Path(__file__).parent / "peers" / "vllm_load.py"


@dataclass(frozen=True, slots=True)
class Spent:
    """Seconds of the wall and of the CPU, medians, for a number of bytes.

    loop: of the CPU, those of the main thread of vLLM's worker.
    """

    wall: float
    cpu: float
    num_bytes: int
    loop: float = 0.0


def timed(work: Callable[[], object], repeats: int, num_bytes: int) -> Spent:
    """Seconds of the work, after one round that does not count."""
    work()
    walls, cpus = list[float](), list[float]()
    for _ in range(repeats):
        started = time.perf_counter(), time.process_time()
        work()
        walls.append(time.perf_counter() - started[0])
        cpus.append(time.process_time() - started[1])
    return Spent(median(walls), median(cpus), num_bytes)


def copied(size: int, repeats: int) -> Spent:
    """A copy of that many bytes in memory."""
    source, target = (torch.ones(size, dtype=torch.uint8) for _ in range(2))
    return timed(lambda: copy_bytes(target, source), repeats, size)


def least(size: int, repeats: int) -> Spent:
    """A copy into shared memory and one out of it, and a checksum of each."""
    source, target = (torch.ones(size, dtype=torch.uint8) for _ in range(2))
    buffers = SharedBuffers(SHARED_MEMORY)
    shared = buffers.buffer(size)

    def send_and_receive() -> None:
        copy_bytes(shared, source)
        checksum(shared)
        copy_bytes(target, shared)
        checksum(target)

    return timed(send_and_receive, repeats, size)


def written(size: int, repeats: int, folder: Path) -> Spent:
    """That many bytes written to a new file."""
    data = torch.ones(size, dtype=torch.uint8).numpy().data

    def write() -> None:
        with (folder / "plain").open("wb", buffering=0) as file:
            write_all(file, data)
        (folder / "plain").unlink()

    return timed(write, repeats, size)


def sent(size: int, repeats: int) -> Spent:
    """That many bytes by a plain TCP connection on this machine."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        sender = socket.create_connection(listener.getsockname())
        receiver, _ = listener.accept()
        data, target = bytearray(size), bytearray(size)

        def receive() -> None:
            view, got = memoryview(target), 0
            while got < size:
                got += receiver.recv_into(view[got:])

        def transfer() -> None:
            thread = threading.Thread(target=receive)
            thread.start()
            sender.sendall(data)
            thread.join()

        with sender, receiver:
            return timed(transfer, repeats, size)


def by_tcp(model: nn.Module, repeats: int) -> Spent:
    """Packing, sending, receiving and checking, by two threads."""
    secret, host = b"of the benchmark", "127.0.0.1"
    trainer = Trainer(secret)
    address = (host, trainer.listen(host))
    receiver = Receiver(address, secret, 0, timeout_s=60)
    trainer.members([0], 60)
    named = [(name, param.detach()) for name, param in model.named_parameters()]
    keys = (("benchmark", i) for i in itertools.count())
    # As the wire and the servers do, that of the last chunk is used again.
    own, memory = (torch.ones(2 * CHUNK_BYTES, dtype=torch.uint8) for _ in range(2))

    def receive(key: Key, size: int) -> None:
        checksum(receiver.fetch(key, memory[:size], [address]))
        receiver.report(key)

    def send() -> None:
        chunks = packed(named, chunk_bytes=CHUNK_BYTES, allocate=lambda size, _: own[:size])
        for key, chunk in zip(keys, chunks, strict=False):
            size = len(chunk.buffer)
            trainer.offer(key, Arriving(chunk.buffer, size))
            checksum(chunk.buffer)
            threading.Thread(target=receive, args=(key, size)).start()
            trainer.wait(key, [0], 60)
            trainer.drop()
            receiver.drop()

    spent = timed(send, repeats, size_of(model))
    receiver.close()
    trainer.close()
    return spent


def by_file(model: nn.Module, repeats: int) -> Spent:
    """Packing into a file in shared memory, and reading it."""
    wire = FileWire()

    def transfer() -> None:
        params = model.named_parameters()
        for chunk in packed(params, chunk_bytes=CHUNK_BYTES, allocate=wire.allocated):
            announced = wire.announced(chunk, ["here"])["here"]
            checksum(mapped(announced["path"], len(chunk.buffer)))
        wire.release(swapped=True)

    return timed(transfer, repeats, size_of(model))


def size_of(model: nn.Module) -> int:
    """Bytes of the params that are trained."""
    return sum(p.nbytes for p in model.parameters() if p.requires_grad)


async def published(
    publisher: PolicyPublisher, model: nn.Module, repeats: int, server: ServerProcess | None = None
) -> Spent:
    """Several publications, without the first, which meet and take memory that is used again."""
    spent = list[list[float]]()

    def clocks() -> list[float]:
        cpu = time.process_time() + (cpu_seconds(server) if server else 0.0)
        return [time.perf_counter(), cpu, loop_seconds(server) if server else 0.0]

    for version in range(repeats + WARM_UP):
        started = clocks()
        await publisher.publish(model.named_parameters(), version)
        spent.append([end - start for start, end in zip(started, clocks(), strict=True)])
    wall, cpu, loop = (median(each) for each in zip(*spent[WARM_UP:], strict=True))
    return Spent(wall, cpu, size_of(model), loop)


def served_here(model: PreTrainedModel, folder: Path, repeats: int) -> dict[str, Spent]:
    """Publications to the local engine in another process, by wire."""
    found = {}
    with local_server(folder) as server:
        for name, wire in (("TCP", TcpWire()), ("shared memory", FileWire())):
            publisher = VLLMPublisher(server.url, wire)
            found[f"local, {name}"] = asyncio.run(published(publisher, model, repeats, server))
    return found


def served(model: PreTrainedModel, folder: Path, python: str, repeats: int) -> dict[str, Spent]:
    """Publications to a vLLM server, by publisher."""
    with vllm_server(folder, python, lora=LORA_RANK) as server:
        full: dict[str, PolicyPublisher] = {
            "vLLM, TCP": VLLMPublisher(server.url, TcpWire()),
            "vLLM, shared memory": VLLMPublisher(server.url, FileWire()),
            "vLLM, checkpoint folder": ReloadPublisher(server.url, folder / "versions"),
        }
        found = {n: asyncio.run(published(p, model, repeats, server)) for n, p in full.items()}
        adapted, _ = load_model(folder, lora_rank=LORA_RANK)
        lora = LoRAPublisher(server.url, folder / "lora", adapted.peft_config["default"])
        found["vLLM, LoRA adapter"] = asyncio.run(published(lora, adapted, repeats, server))
    return found


def loaded_by_vllm(folder: Path, python: str, size: int, repeats: int) -> Spent:
    """A reload by vLLM alone of params that its process has in memory."""
    words = [python, str(VLLM_LOAD), str(folder), str(repeats)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True)
    seconds = median(json.loads(done.stdout))
    return Spent(seconds, seconds, size)


def measured(name: str, python: str | None, repeats: int) -> Table:
    """The table of one model."""
    tokenizer = make_tokenizer(["a b c"], vocab_size=4096)
    model = random_model(name)
    size = size_of(model)
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        rows = {
            "a copy in memory": copied(size, repeats),
            "a TCP connection on this machine": sent(size, repeats),
            "two copies by shared memory, two checksums": least(size, repeats),
            "a write of a file": written(size, repeats, folder),
            "wire alone: TCP": by_tcp(model, repeats),
            "wire alone: shared memory": by_file(model, repeats),
        }
        publisher = FolderPublisher(folder / "published")
        rows["folder"] = asyncio.run(published(publisher, model, repeats))
        save_model(model, tokenizer, folder / "model")
        rows |= served_here(model, folder / "model", repeats)
        if python is not None:
            found = loaded_by_vllm(folder / "model", python, size, repeats)
            rows["vLLM's own reload, in its process"] = found
            rows |= served(model, folder / "model", python, repeats)
    columns = ("what", "ms", "CPU ms", "of it loop", "MB", "MB/s", "MB/CPU-s", "copies")
    table = Table(*columns, title=f"{name}: {size / 4e6:.1f}M params")
    copy = rows["a copy in memory"]
    for what, spent in rows.items():
        seconds, megabytes = (spent.wall, spent.cpu), spent.num_bytes / 1e6
        cells = [f"{each * 1e3:.0f}" for each in (*seconds, spent.loop)] + [f"{megabytes:.1f}"]
        # The CPU time of servers is known in hundredths of a second.
        cells += [f"{megabytes / max(each, 0.01):.0f}" for each in seconds]
        table.add_row(what, *cells, f"{spent.cpu / (copy.cpu * megabytes * 1e6 / size):.1f}")
    return table


def main(argv: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--python", help="a Python with vLLM for CPUs")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=["135M"])
    parser.add_argument("--repeats", type=int, default=5)
    args = parser.parse_args(argv)
    for name in args.shapes:
        Console(width=100).print(measured(name, args.python, args.repeats))


if __name__ == "__main__":
    main()
