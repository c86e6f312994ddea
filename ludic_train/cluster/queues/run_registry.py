"""Registry of the inference servers of a run, in the Redis of its queue.

A server stays in it as long as it renews its lease, by the clock of the Redis. Beside the keys of
the queue KEY, `{KEY}:servers` is a sorted set of addresses by the ms at which their leases end.
"""

from __future__ import annotations

from typing import Any

from ludic_gym.errors import ConfigError
from ludic_train.cluster.queues.redis_connection import redis_call, redis_client

# Seconds of a command, as of the queue.
TIMEOUT_S = 10.0
# A server renews its lease several times in this; one that does not is dead.
LEASE_MS = 15_000
# Servers that a run may have, and characters of an address: the registry is read whole.
MOST_SERVERS, LONGEST_URL = 4_096, 500

# KEYS: servers. ARGV: address, ms to live, most servers. Returns 1 for one that was not there.
_JOIN = """
if redis.replicate_commands then redis.replicate_commands() end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
if redis.call('ZCARD', KEYS[1]) >= tonumber(ARGV[3])
    and not redis.call('ZSCORE', KEYS[1], ARGV[1]) then
  return -1
end
return redis.call('ZADD', KEYS[1], now + tonumber(ARGV[2]), ARGV[1])
"""

# KEYS: servers.
_SERVERS = """
if redis.replicate_commands then redis.replicate_commands() end
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
return redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf')
"""


class RunRegistry:
    """The registry beside the queue `key` of the Redis at `url`; one object serves one event loop.

    Raises QueueError for a bad URL. Each call may raise QueueUnavailable, and may be made again.
    """

    def __init__(self, url: str, key: str) -> None:
        self._redis = redis_client(url, TIMEOUT_S)
        self._servers = f"{{{key}}}:servers"

    async def join(self, url: str) -> bool:
        """Renew the lease of the server at this address; True if it had none.

        Raises ConfigError for an address that no client could use, and for a full registry.
        """
        if not url.startswith(("http://", "https://")) or len(url) > LONGEST_URL:
            raise ConfigError(f"a server joins by its http(s) address, got {url[:LONGEST_URL]!r}")
        added = await self._run(_JOIN, self._servers, url, LEASE_MS, MOST_SERVERS)
        if added < 0:
            raise ConfigError(f"{MOST_SERVERS} servers have joined, and {url} is one too many")
        return bool(added)

    async def leave(self, url: str) -> None:
        """End the lease of the server at this address."""
        async with redis_call(TIMEOUT_S):
            await self._redis.zrem(self._servers, url)

    async def servers(self) -> list[str]:
        """Addresses of the servers whose leases run, in alphabetical order."""
        addresses = await self._run(_SERVERS, self._servers)
        named = sorted(each.decode(errors="replace") for each in addresses)
        # Whoever writes into this Redis could have clients fail for an address that is none.
        return [u for u in named if u.startswith(("http://", "https://")) and u.isprintable()]

    async def aclose(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    async def _run(self, script: str, key: str, *arguments: str | int) -> Any:  # noqa: ANN401
        async with redis_call(TIMEOUT_S):
            return await self._redis.register_script(script)(keys=[key], args=arguments)
