"""Atomic steps of actors in Redis: their reports, the grants, and the signals that there is room.

An admission costs the same however many actors there are: it changes its own actor's share of
`playing`, and looks at leases that have run out alone. `redis_scripts` has the keys.

An actor that was granted less than it wanted waits. It is woken where room may have come: by what
the trainer settles, by an actor that leaves, and by the grant of one that was woken before it. A
signal is a hint and no grant: one that is lost costs the time until the next report.
"""

from ludic_train.cluster.queues.redis_scripts import ALLOW

# Signals of one event: several, so that a thousand actors are woken in a few steps, and few, so
# that one with much to play does not leave many awake in vain.
WOKEN_AT_ONCE = 8
# Milliseconds after which a signal that no actor took is dropped.
SIGNAL_MS = 5_000

# KEYS: groups, state, actors, running, leases, waiting. ARGV: prefix of the wake keys, max_queued.
# The formula of `room` is `base.capacity`. The clock is the server's, so that those of actors do
# not matter; Redis 6.2 has to replicate the effects of a script that reads it.
_ACTORS = f"""
if redis.replicate_commands then redis.replicate_commands() end
local groups, state, actors, running = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local leases, waiting = KEYS[5], KEYS[6]
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local function note(name, playing)
  local before = tonumber(redis.call('HGET', running, name) or 0)
  redis.call('HINCRBY', state, 'playing', playing - before)
  redis.call('HSET', running, name, playing)
end
local function forget(name)
  local before = tonumber(redis.call('HGET', running, name) or 0)
  redis.call('HDEL', running, name)
  redis.call('HDEL', actors, name)
  redis.call('ZREM', leases, name)
  redis.call('ZREM', waiting, name)
  redis.call('HINCRBY', state, 'playing', 0 - before)
end
local s = redis.call('HMGET', state, 'version', 'groups_per_batch', 'group_size',
  'updates_per_batch', 'max_lag', 'held', 'apart', 'levels')
local function room(version)
  local most = tonumber(ARGV[2])
  if s[5] ~= '' then
    local lag = math.max(0, tonumber(s[1]) - version)
    local left = tonumber(s[5]) - lag - (tonumber(s[4]) - 1)
    most = tonumber(s[2]) * (math.floor(left / tonumber(s[4])) + 1)
  end
  local queued = redis.call('XLEN', groups) - tonumber(s[6]) + tonumber(s[7])
  return most - queued - tonumber(redis.call('HGET', state, 'playing') or 0)
end
local function wake()
  if not s[1] then return end
  local free = math.min(room(tonumber(s[1])), {WOKEN_AT_ONCE})
  if free <= 0 then return end
  local found = redis.call('ZPOPMIN', waiting, free)
  for i = 1, #found, 2 do
    local key = ARGV[1] .. found[i]
    redis.call('DEL', key)
    redis.call('RPUSH', key, '1')
    redis.call('PEXPIRE', key, {SIGNAL_MS})
  end
end
"""

# Dead actors are found here, by those that live: there is no process that could look for them.
# KEYS: as _ACTORS, then retired. ARGV: as _ACTORS, name, report, running, version, wanted, ms to
# live, retired tasks that the actor knows, and the most to name.
ADMIT = f"""
{_ACTORS}
local name, wanted = ARGV[3], tonumber(ARGV[7])
note(name, tonumber(ARGV[5]))
redis.call('HSET', actors, name, ARGV[4])
redis.call('ZADD', leases, now + tonumber(ARGV[8]), name)
for _, dead in ipairs(redis.call('ZRANGEBYSCORE', leases, '-inf', now, 'LIMIT', 0, 100)) do
  forget(dead)
end
local granted = s[1] and math.max(0, math.min(wanted, room(tonumber(ARGV[6])))) or 0
if granted < wanted then
  redis.call('ZADD', waiting, 'NX', now, name)
else
  redis.call('ZREM', waiting, name)
end
if granted > 0 then
  note(name, tonumber(ARGV[5]) + granted)
  wake()
end
if not s[1] then return {{0}} end
local known = tonumber(ARGV[9])
local retired = redis.call('LRANGE', KEYS[7], known, known + tonumber(ARGV[10]) - 1)
return {{granted, s[1], s[2], s[3], s[4], s[5], s[8], retired}}
"""

# Both work on a server whose memory is full too, see `redis_scripts`; an admission has to wait.
# ARGV: as _ACTORS, name.
LEAVE = f"""
{ALLOW}
{_ACTORS}
forget(ARGV[3])
redis.call('DEL', ARGV[1] .. ARGV[3])
wake()
"""

WAKE = f"""
{ALLOW}
{_ACTORS}
wake()
"""
