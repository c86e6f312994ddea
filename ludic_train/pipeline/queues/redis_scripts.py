"""Atomic steps of a queue in Redis: small scripts that see ids and numbers, never the groups.

A group of 150 kB through Lua costs four times what it costs beside it, so groups travel by plain
XADD and XREADGROUP. Every script that changes something says absolute numbers or checks first
whether it was run already, because a caller whose connection broke runs it again.

    groups       stream of entries {k: key, d: bytes}. One consumer group, trainer-EPOCH, whose
                 last-delivered-id is the boundary between groups that were read and that were not
    state        hash: epoch, held, released, and the fields of the trainer's report
    counts       hash: groups by their end, as in QueueStatus
    lags         hash: groups trained on, by lag
    owners       hash: key of a group -> id of the entry that it belongs to
    order        list: keys of `owners`, oldest first, to forget them in that order
    attempts     hash: id of an entry -> readers that died with it in their batch
    actors       hash: name -> report as JSON
    running      hash: name -> groups that it plays, granted ones included
    alive:NAME   key that expires where the actor does not report
    retired      list: keys of retired tasks, of which an actor knows the first n
    retired_set  the same as a hash, to add each once
    dead         stream of dead letters

Invariants, which hold between any two scripts:

- `released` + `held` is the number of groups trained on. The first `held` entries of the stream
  are these, so that XLEN - held groups wait.
- Entries leave from the front of what was read, by settle, or singly, by discard. No script
  removes an entry that a reader may have in a batch.
- An entry that was removed leaves the consumer group too (XACK), or a later read would list it as
  pending for ever.
- A key is in `owners` exactly if it is in `order`: both are written by one script, HSETNX first,
  so that a second run adds no second place in the list.
- `epoch` only grows while the server keeps its state. A server that lost `state` returns RESET, and
  the reader takes over again with the numbers that it holds itself.

A script runs without any other command between its own, and its effects reach the server's log and
its replicas as one transaction: after a crash they are all there, or none of them is.
"""

# A server whose memory is full lets a script write after it has removed something; and what these
# write is what makes room.
_ALLOW = """
redis.call('HDEL', KEYS[2], '')
"""

# Only the reader of the newest epoch may change what has been read.
_FENCE = f"""
local epoch = redis.call('HGET', STATE, 'epoch')
if not epoch then return redis.error_reply('RESET') end
if epoch ~= ARGV[1] then return redis.error_reply('SUPERSEDED') end
{_ALLOW}
"""

# Dead actors are found here, by those that live: there is no process that could look for them. The
# keys of the dead expire by the server's clock, so that the clocks of actors do not matter.
# KEYS: groups, state, actors, running, retired. ARGV: prefix of the alive keys, name, report,
# running, version, wanted, ms to live, max_queued, retired tasks that the actor knows, and the most
# to name. The formula is `base.capacity`.
ADMIT = """
local groups, state, actors, running = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
redis.call('SET', ARGV[1] .. ARGV[2], '1', 'PX', ARGV[7])
redis.call('HSET', actors, ARGV[2], ARGV[3])
redis.call('HSET', running, ARGV[2], ARGV[4])
local playing = 0
local all = redis.call('HGETALL', running)
for i = 1, #all, 2 do
  if redis.call('EXISTS', ARGV[1] .. all[i]) == 1 then
    playing = playing + tonumber(all[i + 1])
  else
    redis.call('HDEL', running, all[i])
    redis.call('HDEL', actors, all[i])
  end
end
local s = redis.call('HMGET', state, 'version', 'groups_per_batch', 'group_size',
  'updates_per_batch', 'max_lag', 'held')
if not s[1] then return {0} end
local room = tonumber(ARGV[8])
if s[5] ~= '' then
  local lag = math.max(0, tonumber(s[1]) - tonumber(ARGV[5]))
  local left = tonumber(s[5]) - lag - (tonumber(s[4]) - 1)
  room = tonumber(s[2]) * (math.floor(left / tonumber(s[4])) + 1)
end
local queued = redis.call('XLEN', groups) - tonumber(s[6])
local granted = math.max(0, math.min(tonumber(ARGV[6]), room - queued - playing))
redis.call('HINCRBY', running, ARGV[2], granted)
local known = tonumber(ARGV[9])
local retired = redis.call('LRANGE', KEYS[5], known, known + tonumber(ARGV[10]) - 1)
return {granted, s[1], s[2], s[3], s[4], s[5], retired}
"""

# KEYS: groups, state, counts. ARGV: max_queued. Entries that were read already stay: the trainer
# has them.
DROP_OLDEST = """
local groups, state, counts = KEYS[1], KEYS[2], KEYS[3]
local held = tonumber(redis.call('HGET', state, 'held') or '0')
local surplus = redis.call('XLEN', groups) - held - tonumber(ARGV[1])
if surplus <= 0 then return 0 end
local start, found = '-', redis.call('XINFO', 'GROUPS', groups)
if #found > 0 then
  for i = 1, #found[1], 2 do
    if found[1][i] == 'last-delivered-id' then start = '(' .. found[1][i + 1] end
  end
end
local dropped = 0
for _, entry in ipairs(redis.call('XRANGE', groups, start, '+', 'COUNT', surplus)) do
  dropped = dropped + redis.call('XDEL', groups, entry[1])
end
redis.call('HINCRBY', counts, 'dropped', dropped)
return dropped
"""

# The old consumer group goes, and with it what was pending for the reader before; the new one
# begins at 0, so that all that is left is delivered again. XSETID keeps the ids ascending on a
# server that lost the stream: a smaller id would stand before the cursor of a checkpoint.
# KEYS: groups, state, counts. ARGV: the first id that stays, held, released, the id that new ones
# must come after, then names and values of the trainer's report. Returns the epoch and the groups
# lost.
TAKE_OVER = f"""
{_ALLOW}
local groups, state = KEYS[1], KEYS[2]
if redis.call('EXISTS', groups) == 1 then
  for _, found in ipairs(redis.call('XINFO', 'GROUPS', groups)) do
    redis.call('XGROUP', 'DESTROY', groups, found[2])
  end
  if ARGV[1] ~= '' then redis.call('XTRIM', groups, 'MINID', '=', ARGV[1]) end
end
local epoch = redis.call('HINCRBY', state, 'epoch', 1)
local lost = tonumber(redis.call('HGET', state, 'released') or '0') - tonumber(ARGV[3])
redis.call('XGROUP', 'CREATE', groups, 'trainer-' .. epoch, '0', 'MKSTREAM')
local function parts(id)
  local ms, seq = id:match('(%d+)-(%d+)')
  return tonumber(ms), tonumber(seq)
end
local info, last = redis.call('XINFO', 'STREAM', groups), '0-0'
for i = 1, #info, 2 do
  if info[i] == 'last-generated-id' then last = info[i + 1] end
end
local ms, seq = parts(last)
local newest_ms, newest_seq = parts(ARGV[4])
if ms < newest_ms or (ms == newest_ms and seq < newest_seq) then
  redis.call('XSETID', groups, ARGV[4])
end
redis.call('HSET', state, 'held', ARGV[2], 'released', ARGV[3], unpack(ARGV, 5))
if lost > 0 then redis.call('HINCRBY', KEYS[3], 'lost', lost) end
return {{epoch, math.max(0, lost)}}
"""

# KEYS: groups, state, attempts. ARGV: epoch, then id and attempts of each; without any, it only
# fails for a reader that was superseded.
ATTEMPT = f"""
local STATE = KEYS[2]
{_FENCE}
for i = 2, #ARGV, 2 do redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1]) end
return 1
"""

# KEYS: groups, state, lags, owners, order, attempts, retired, retired_set. ARGV: epoch, version,
# held, released, keys remembered, number of trained, number of retired tasks, then id, key, lag of
# each trained, then the retired tasks, then the ids to release.
SETTLE = f"""
local STATE = KEYS[2]
{_FENCE}
local groups, lags, owners, order, attempts = KEYS[1], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
redis.call('HSET', STATE, 'version', ARGV[2], 'held', ARGV[3], 'released', ARGV[4])
local first_retired = 8 + 3 * tonumber(ARGV[6])
local first_release = first_retired + tonumber(ARGV[7])
local by_lag = {{}}
for i = first_retired, first_release - 1 do
  if redis.call('HSETNX', KEYS[8], ARGV[i], '') == 1 then redis.call('RPUSH', KEYS[7], ARGV[i]) end
end
for i = 8, first_retired - 1, 3 do
  redis.call('HDEL', attempts, ARGV[i])
  if redis.call('HSETNX', owners, ARGV[i + 1], ARGV[i]) == 1 then
    redis.call('RPUSH', order, ARGV[i + 1])
    if ARGV[i + 2] ~= '' then by_lag[ARGV[i + 2]] = (by_lag[ARGV[i + 2]] or 0) + 1 end
  end
end
for lag, groups_of_it in pairs(by_lag) do redis.call('HINCRBY', lags, lag, groups_of_it) end
-- Lua passes at most some thousand arguments at once.
for i = first_release, #ARGV, 1000 do
  local last = math.min(i + 999, #ARGV)
  redis.call('XACK', groups, 'trainer-' .. ARGV[1], unpack(ARGV, i, last))
  redis.call('XDEL', groups, unpack(ARGV, i, last))
end
while redis.call('LLEN', order) > tonumber(ARGV[5]) do
  redis.call('HDEL', owners, redis.call('LPOP', order))
end
return 1
"""

# KEYS: groups, state, counts, owners, order, attempts, dead. ARGV: epoch, id, key, why, reason,
# size, head, dead letters kept. A dead entry owns no key, since its key may be a lie; nor does a
# duplicate, whose key is that of an entry which may still have to be trained on. Redis 6.2
# has to replicate the effects of the script, since XADD chooses an id.
DISCARD = f"""
if redis.replicate_commands then redis.replicate_commands() end
local STATE = KEYS[2]
{_FENCE}
redis.call('XACK', KEYS[1], 'trainer-' .. ARGV[1], ARGV[2])
if redis.call('XDEL', KEYS[1], ARGV[2]) == 0 then return 0 end
redis.call('HINCRBY', KEYS[3], ARGV[4], 1)
redis.call('HDEL', KEYS[6], ARGV[2])
local owns = ARGV[4] ~= 'dead' and ARGV[4] ~= 'duplicate'
if owns and redis.call('HSETNX', KEYS[4], ARGV[3], ARGV[2]) == 1 then
  redis.call('RPUSH', KEYS[5], ARGV[3])
end
if ARGV[4] == 'dead' then
  redis.call('XADD', KEYS[7], 'MAXLEN', '~', ARGV[8], '*', 'id', ARGV[2], 'key', ARGV[3],
    'reason', ARGV[5], 'size', ARGV[6], 'head', ARGV[7])
end
return 1
"""
