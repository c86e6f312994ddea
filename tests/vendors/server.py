"""A server of both routes on this machine."""

from contextlib import asynccontextmanager

from aiohttp import web


@asynccontextmanager
async def serving(*replies, endless=False):
    """A server that sends each reply once, and the last one from then on; address and requests."""
    left, seen = list(replies), []

    async def respond(request):
        seen.append(await request.json())
        if endless:
            left.append(left[0])
        status, sent = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(sent, str):
            kind = "text/html" if sent.startswith("<") else "text/event-stream"
            return web.Response(text=sent, status=status, content_type=kind)
        return web.json_response(sent, status=status)

    app = web.Application()
    app.router.add_post("/chat/completions", respond)
    app.router.add_post("/v1/messages", respond)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", seen
    finally:
        await runner.cleanup()
