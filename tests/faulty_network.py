"""A network for the tests that falls silent, loses answers and breaks in the middle of messages."""

import asyncio
from contextlib import suppress

THERE, BACK = "there", "back"


class Network:
    """Carries bytes to a port of this machine and back; each way can be stopped by itself.

    cuts: how often all connections were broken.
    rate: bytes per second of each connection and way; None for as fast as it is.
    """

    def __init__(self, port, rate=None):
        self._rate = rate
        self._port, self._pumps, self._writers, self.cuts = port, set(), set(), 0
        self._flowing = {way: asyncio.Event() for way in (THERE, BACK)}
        self._left = {THERE: None, BACK: None}
        self.go_on()

    async def start(self):
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        (self.port,) = {each.getsockname()[1] for each in self._server.sockets}
        self.url = f"redis://127.0.0.1:{self.port}/0"

    def lead_to(self, port):
        """Carry bytes to another port from now on; all connections break."""
        self._port = port
        self.cut()

    def silence(self, *ways):
        """Let nothing through these ways; connections stay, and nobody is told."""
        for way in ways:
            self._flowing[way].clear()

    def go_on(self):
        for flowing in self._flowing.values():
            flowing.set()

    def cut_after(self, way, count):
        """Break all connections when `count` more bytes have gone this way."""
        self._left[way] = count

    def cut(self):
        self.cuts += 1
        self._left = {THERE: None, BACK: None}
        for writer in self._writers:
            writer.transport.abort()

    async def close(self):
        self._server.close()
        # What was accepted just now gets its transport and its task in the next rounds of the loop.
        for _ in range(3):
            await asyncio.sleep(0)
        self.cut()
        for pump in self._pumps:
            pump.cancel()
        await asyncio.gather(*self._pumps, return_exceptions=True)
        # A socket that was aborted is closed in the loop's next round.
        await asyncio.sleep(0)

    async def _carry(self, reader, writer):
        # Both are known before the other side is there, so that `close` ends them in between too.
        self._writers.add(writer)
        self._known(asyncio.current_task())
        try:
            there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._port)
        except OSError:
            writer.transport.abort()
            return
        self._writers.add(there_writer)
        for way, source, sink in (
            (THERE, reader, there_writer),
            (BACK, there_reader, writer),
        ):
            self._known(asyncio.create_task(self._pump(way, source, sink)))

    def _known(self, task):
        self._pumps.add(task)
        task.add_done_callback(self._pumps.discard)

    async def _pump(self, way, source, sink):
        with suppress(OSError):
            while data := await source.read(2**16 if self._rate is None else self._rate // 20):
                if self._rate is not None:
                    await asyncio.sleep(len(data) / self._rate)
                await self._flowing[way].wait()
                left = self._left[way]
                if left is not None and len(data) >= left:
                    sink.write(data[:left])
                    with suppress(OSError):
                        await sink.drain()
                    self.cut()
                    break
                if left is not None:
                    self._left[way] = left - len(data)
                sink.write(data)
                await sink.drain()
        # It stays known: bytes that the other side does not take would keep it open.
        sink.close()
