"""Atomic steps of a queue in Redis: small scripts that see ids and numbers, never the groups.

A group of 150 kB through Lua costs four times what it costs beside it, so groups travel by plain
XADD and XREAD. Every script that changes something says absolute numbers or checks first whether
it was run already, because a caller whose connection broke runs it again.

    groups       stream of entries {k: key, d: bytes}. One consumer group, trainer-EPOCH, made by
                 the take-over. Its pending entries were read and not trained on. Nothing is read
                 through it: a read of XREADGROUP whose response is lost takes entries along
    state        hash: epoch, reader, calls, contested, taken_by, settled, trained, held, apart,
                 playing, and the fields of the trainer's report
    reader       key with the name of the reader that expires where it does not report
    counts       hash: groups by their end, as in QueueStatus
    lags         hash: groups trained on, by lag
    owners       hash: key of a group -> id of the entry that it belongs to
    order        list: keys of `owners`, oldest first, to forget them in that order
    attempts     hash: id of an entry -> readers that died with it in their batch
    actors       hash: name -> report as JSON
    running      hash: name -> groups that it plays, granted ones included
    leases       sorted set: name -> ms of the server's clock at which the actor is dead
    waiting      sorted set: name -> ms at which it was first granted less than it wanted
    wake:NAME    list of one element: that actor has to report at once
    retired      list: keys of retired tasks, of which an actor knows the first n
    retired_set  the same as a hash, to add each once
    dead         stream of dead letters

Invariants, which hold between any two scripts:

- `held` is the number of entries that were trained on and are in the stream, so that XLEN - held
  groups wait there. A take-over counts those that are there; from then on only the reader removes
  them. `apart` more groups wait at the reader alone: a server that came back has lost them.
- `trained` is the number of groups trained on, `trained` - `held` of which are gone for good.
- Entries leave from the front of what was read, by settle, or singly, by discard. No script
  removes an entry that a reader may have in a batch.
- An entry that was removed leaves the consumer group too (XACK).
- `playing` is the sum of `running`, so that an admission looks at no other actor. An actor is in
  `leases` exactly if it is in `running`. A script of `redis_scripts` alone changes these.
- A key is in `owners` exactly if it is in `order`: both are written by one script, HSETNX first,
  so that a second run adds no second place in the list.
- `epoch` and `calls` only grow while the server keeps its state. A reader knows the largest `calls`
  that any response named. A server with a smaller one came back without a call that it had
  confirmed, from an older snapshot or as a replica that lagged: it returns RESET, and the reader
  takes over again, with the numbers that it holds itself.
- `contested` is set while the reader took the queue from one that was alive. As long as it lives
  itself, no other takes the queue from it: two trainers that are restarted for ever settle it once.

Ids and keys of groups travel as one argument of msgpack: redis-py spends a microsecond on each
argument, which was a third of the reader's time.

A script runs without any other command between its own, and its effects reach the server's log and
its replicas as one transaction: after a crash they are all there, or none of them is.
"""

# A server whose memory is full lets a script write after it has removed something; and what these
# write is what makes room.
ALLOW = """
redis.call('HDEL', KEYS[2], '')
"""

# Only the reader of the newest epoch may change what has been read. KEYS: the stream, the state.
# ARGV: epoch, name of the reader, calls that it knows of. An epoch of its own that it does not know
# is that of a take-over whose response was lost.
_FENCE = f"""
local now = redis.call('HMGET', KEYS[2], 'epoch', 'reader', 'calls')
local epoch, asked = tonumber(now[1] or 0), tonumber(ARGV[1])
if epoch < asked then return redis.error_reply('RESET') end
if now[2] ~= ARGV[2] then return redis.error_reply('SUPERSEDED') end
if epoch > asked or tonumber(now[3]) < tonumber(ARGV[3]) then return redis.error_reply('RESET') end
{ALLOW}
local calls = redis.call('HINCRBY', KEYS[2], 'calls', 1)
local group = 'trainer-' .. ARGV[1]
"""

# KEYS: groups, state, reader. ARGV: the largest epoch that the reader had, its name, ms to live.
# Returns nothing where the reader before won a contest and lives.
_SEIZE = f"""
{ALLOW}
local groups, state = KEYS[1], KEYS[2]
local living = redis.call('GET', KEYS[3])
if living and living ~= ARGV[2] then
  if redis.call('HGET', state, 'contested') then return {{}} end
  redis.call('HSET', state, 'contested', 1)
elseif not living and redis.call('HGET', state, 'reader') ~= ARGV[2] then
  redis.call('HDEL', state, 'contested')
end
redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[3])
local epoch = math.max(tonumber(redis.call('HGET', state, 'epoch') or 0), tonumber(ARGV[1])) + 1
local calls = redis.call('HINCRBY', state, 'calls', 1)
redis.call('HSET', state, 'epoch', epoch, 'reader', ARGV[2])
"""

CLAIM = f"""
{_SEIZE}
return {{epoch, calls}}
"""
# Ids, of those in a table, whose entries are in the stream; they are pending then. XCLAIM tells so
# without the data of the entries. Lua passes some thousand arguments at most. Redis 6.2 has to
# replicate the effects, since XCLAIM notes the time.
_CLAIMED = """
if redis.replicate_commands then redis.replicate_commands() end
local function claimed(group, ids)
  local found = {}
  for i = 1, #ids, 1000 do
    local command = {'XCLAIM', KEYS[1], group, 'reader', 0}
    for j = i, math.min(i + 999, #ids) do command[#command + 1] = ids[j] end
    command[#command + 1], command[#command + 2] = 'FORCE', 'JUSTID'
    for _, id in ipairs(redis.call(unpack(command))) do found[#found + 1] = id end
  end
  return found
end
"""

# The old consumer group goes, and with it what was pending for the reader before. XSETID keeps the
# ids ascending on a server that lost the stream: a smaller id would stand before the cursor of a
# checkpoint. KEYS: as _SEIZE, then counts. ARGV: as _SEIZE, then the first id that stays, groups
# trained on, the id that new ones must come after, the boundary, msgpack of the ids of held and of
# waiting entries, then names and values of the trainer's report. Returns epoch, calls, groups lost,
# 1 for a server that knows less than the checkpoint, and the ids that are there.
TAKE_OVER = f"""
{_CLAIMED}
{_SEIZE}
local removed = 0
if redis.call('EXISTS', groups) == 1 then
  for _, found in ipairs(redis.call('XINFO', 'GROUPS', groups)) do
    redis.call('XGROUP', 'DESTROY', groups, found[2])
  end
  if ARGV[4] ~= '' then removed = redis.call('XTRIM', groups, 'MINID', '=', ARGV[4]) end
end
local group = 'trainer-' .. epoch
redis.call('XGROUP', 'CREATE', groups, group, ARGV[7], 'MKSTREAM')
local function parts(id)
  local ms, seq = id:match('(%d+)-(%d+)')
  return tonumber(ms), tonumber(seq)
end
local info, last = redis.call('XINFO', 'STREAM', groups), '0-0'
for i = 1, #info, 2 do
  if info[i] == 'last-generated-id' then last = info[i + 1] end
end
local ms, seq = parts(last)
local newest_ms, newest_seq = parts(ARGV[6])
if ms < newest_ms or (ms == newest_ms and seq < newest_seq) then
  redis.call('XSETID', groups, ARGV[6])
end
local ids_held, ids_waiting = unpack(cmsgpack.unpack(ARGV[8]))
local there = claimed(group, ids_held)
local held = #there
for i = 1, held, 1000 do
  redis.call('XACK', groups, group, unpack(there, i, math.min(i + 999, held)))
end
for _, id in ipairs(claimed(group, ids_waiting)) do there[#there + 1] = id end
local apart = #ids_waiting - (#there - held)
local before = redis.call('HMGET', state, 'trained', 'held', 'apart', 'taken_by')
local trained = tonumber(ARGV[5])
local kept = math.max(0, tonumber(before[2] or 0) - removed)
local lost = math.max(0, tonumber(before[1] or 0) - trained - kept)
if before[4] ~= ARGV[2] then lost = lost + tonumber(before[3] or 0) end
local forgot = tonumber(before[1] or 0) < trained and 1 or 0
redis.call('HSET', state, 'held', held, 'apart', apart, 'trained', trained, 'settled', 0,
  'taken_by', ARGV[2],
  unpack(ARGV, 9))
if lost > 0 then redis.call('HINCRBY', KEYS[4], 'lost', lost) end
return {{epoch, calls, lost, forgot, there}}
"""

# KEYS: groups, state. ARGV: as _FENCE, the new boundary, then msgpack of the ids that were read for
# the first time, which are pending then.
READ = f"""
{_CLAIMED}
{_FENCE}
if redis.call('EXISTS', KEYS[1]) == 0 then return redis.error_reply('RESET') end
local moved = redis.pcall('XGROUP', 'SETID', KEYS[1], group, ARGV[4])
if moved.err then return redis.error_reply('RESET') end
claimed(group, cmsgpack.unpack(ARGV[5]))
return calls
"""

# KEYS: groups, state, reader. ARGV: as _FENCE, ms to live.
BEAT = f"""
{_FENCE}
redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[4])
return calls
"""

# KEYS: groups, state, attempts. ARGV: as _FENCE, then id and attempts of each.
ATTEMPT = f"""
{_FENCE}
for i = 4, #ARGV, 2 do redis.call('HSET', KEYS[3], ARGV[i], ARGV[i + 1]) end
return calls
"""

# KEYS: groups, state, lags, owners, order, attempts, retired, retired_set. ARGV: as _FENCE, the
# number of this settlement, version, held, trained, apart, keys remembered, levels, then msgpack of
# id, key, lag of each trained, of the retired tasks, and of the ids to release. A settlement that
# arrives after a later one would set the numbers back.
SETTLE = f"""
{_FENCE}
if tonumber(ARGV[4]) <= tonumber(redis.call('HGET', KEYS[2], 'settled')) then return calls end
local groups, lags, owners, order, attempts = KEYS[1], KEYS[3], KEYS[4], KEYS[5], KEYS[6]
redis.call('HSET', KEYS[2], 'settled', ARGV[4], 'version', ARGV[5], 'held', ARGV[6],
  'trained', ARGV[7], 'apart', ARGV[8], 'levels', ARGV[10])
local trained, retired, release = unpack(cmsgpack.unpack(ARGV[11]))
local by_lag, done = {{}}, {{}}
for _, task in ipairs(retired) do
  if redis.call('HSETNX', KEYS[8], task, '') == 1 then redis.call('RPUSH', KEYS[7], task) end
end
for i, one in ipairs(trained) do
  local id, key, lag = unpack(one)
  done[i] = id
  if redis.call('HSETNX', owners, key, id) == 1 then
    redis.call('RPUSH', order, key)
    if lag ~= '' then by_lag[lag] = (by_lag[lag] or 0) + 1 end
  end
end
for lag, groups_of_it in pairs(by_lag) do redis.call('HINCRBY', lags, lag, groups_of_it) end
for i = 1, #done, 1000 do
  local last = math.min(i + 999, #done)
  redis.call('HDEL', attempts, unpack(done, i, last))
  redis.call('XACK', groups, group, unpack(done, i, last))
end
for i = 1, #release, 1000 do
  redis.call('XDEL', groups, unpack(release, i, math.min(i + 999, #release)))
end
while redis.call('LLEN', order) > tonumber(ARGV[9]) do
  redis.call('HDEL', owners, redis.call('LPOP', order))
end
return calls
"""

# KEYS: groups, state, counts, owners, order, attempts, dead. ARGV: as _FENCE, id, key, why, reason,
# size, head, dead letters kept. A dead entry owns no key, since its key may be a lie; nor does a
# duplicate, whose key is that of an entry which may still have to be trained on. Redis 6.2
# has to replicate the effects of the script, since XADD chooses an id.
DISCARD = f"""
if redis.replicate_commands then redis.replicate_commands() end
{_FENCE}
redis.call('XACK', KEYS[1], group, ARGV[4])
if redis.call('XDEL', KEYS[1], ARGV[4]) == 0 then return calls end
redis.call('HINCRBY', KEYS[3], ARGV[6], 1)
redis.call('HDEL', KEYS[6], ARGV[4])
local owns = ARGV[6] ~= 'dead' and ARGV[6] ~= 'duplicate'
if owns and redis.call('HSETNX', KEYS[4], ARGV[5], ARGV[4]) == 1 then
  redis.call('RPUSH', KEYS[5], ARGV[5])
end
if ARGV[6] == 'dead' then
  redis.call('XADD', KEYS[7], 'MAXLEN', '~', ARGV[10], '*', 'id', ARGV[4], 'key', ARGV[5],
    'reason', ARGV[7], 'size', ARGV[8], 'head', ARGV[9])
end
return calls
"""


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
