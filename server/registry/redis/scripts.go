package redis

import (
	"strconv"
	"strings"

	"github.com/tidemark-im/tidemark/internal/redis"
	"github.com/tidemark-im/tidemark/server/registry"
)

// The keys of a registry:
//
//	ws:<data>:<user>          hash   d:<device> → expires|node|boot|session
//	                                 proof → crashes|incarnation|replid
//	epoch:{tidemark}:<data>   hash   crashes, incarnation
//	nodes:{tidemark}:<data>   hash   <node> → expires|boot|state
//
// data is the incarnation of the data in storage; the incarnation in the keys is that of Redis.
// A node's state is 1 while it has its lease, and 0 when that has expired. Times are milliseconds
// of the clock of the Redis that runs the script; the clocks of nodes are never used. Ids contain
// no bar. replid names one life of a server's data: it changes with a restart and with a failover.
// A user's key expires with the last lease, or ProofTTL after the proof was left.

// scripts has the Lua scripts of a registry.
type scripts struct {
	lookup, open, close, prolong  *redis.Script
	epoch, join, leave, heartbeat *redis.Script
}

func newScripts() scripts {
	nodes := strings.ReplaceAll(nodes, "{remembered}",
		strconv.FormatInt(registry.Remembered.Milliseconds(), 10))
	return scripts{
		lookup:    redis.NewScript(clock + lookupScript),
		open:      redis.NewScript(clock + identity + leases + openScript),
		close:     redis.NewScript(clock + identity + leases + closeScript),
		prolong:   redis.NewScript(clock + leases + prolongScript),
		epoch:     redis.NewScript(clock + identity + nodes + epochScript),
		join:      redis.NewScript(clock + identity + heal + nodes + joinScript),
		leave:     redis.NewScript(clock + identity + nodes + leaveScript),
		heartbeat: redis.NewScript(clock + identity + heal + nodes + heartbeatScript),
	}
}

const clock = `
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local function whole(n) return string.format('%.0f', n) end
`

const identity = `
local function replid()
  return string.match(redis.call('INFO', 'replication'), 'master_replid:(%x+)') or ''
end
`

// KEYS: epoch, nodes. heal deletes a key of another type: if someone else has written it, the
// registry's data is lost.
// rule:R_EPOCH.remove-overwritten-keys
const heal = `
for i = 1, 2 do
  local is = redis.call('TYPE', KEYS[i]).ok
  if is ~= 'hash' and is ~= 'none' then redis.call('DEL', KEYS[i]) end
end
`

// KEYS: users. The caller drops expired leases by the time that is returned.
const lookupScript = `
local found = {now}
for i = 1, #KEYS do found[i + 1] = redis.call('HGETALL', KEYS[i]) end
return found
`

// held returns a user's unexpired leases, and deletes the others.
const leases = `
local function read(value)
  local expires, rest = string.match(value, '^(%d+)|(.*)$')
  return tonumber(expires), rest
end
local function held(key)
  local found, latest, all = {}, 0, redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    if string.sub(all[i], 1, 2) == 'd:' then
      local expires, rest = read(all[i + 1])
      if expires and expires >= now then
        found[all[i]] = rest
        if expires > latest then latest = expires end
      else
        redis.call('HDEL', key, all[i])
      end
    end
  end
  return found, latest
end
`

// KEYS: user. ARGV: field, node|boot|session, session, ttl, expiry of the node's lease, 1 for
// LeaseRequest.Continue. It returns 1, whether there are other leases, and the number of leases.
// Then follow the proof, and the previous lease of this session if another node held it.
// rule:R_PROOF.open-script
const openScript = `
if now > tonumber(ARGV[5]) then return {0} end
local found, latest = held(KEYS[1])
local mine = found[ARGV[1]]
local same = mine and string.match(mine, '[^|]*$') == ARGV[3]
local moved = same and mine ~= ARGV[2]
if ARGV[6] == '1' and not moved then return {1, 0, 0, '', ''} end
local others, count = 0, 1
for field in pairs(found) do
  if field ~= ARGV[1] then others = 1; count = count + 1 end
end
if mine and not same then others = 1 end
local expires = now + ARGV[4]
redis.call('HSET', KEYS[1], ARGV[1], whole(expires) .. '|' .. ARGV[2])
local proof = redis.call('HGET', KEYS[1], 'proof')
if proof then
  redis.call('HDEL', KEYS[1], 'proof')
  local named, of = string.match(proof, '^(.*)|(%x*)$')
  proof = of == replid() and named
end
redis.call('PEXPIREAT', KEYS[1], whole(math.max(latest, expires)))
return {1, others, count, proof or '', moved and mine or ''}
`

// KEYS: user. ARGV: field, node|boot|session, expiry of the node's lease, proof or nothing, its
// ttl.
// rule:R_LAST.close-script
const closeScript = `
if now > tonumber(ARGV[3]) then return {0} end
local found, latest = held(KEYS[1])
if found[ARGV[1]] ~= ARGV[2] then return {1, 0} end
redis.call('HDEL', KEYS[1], ARGV[1])
found[ARGV[1]] = nil
if next(found) then
  return {1, 1}
end
if ARGV[4] ~= '' then
  redis.call('HSET', KEYS[1], 'proof', ARGV[4] .. '|' .. replid())
  redis.call('PEXPIRE', KEYS[1], ARGV[5])
end
return {1, 1}
`

// KEYS: users. ARGV: ttl, then field and node|boot|session of each lease. It returns for each lease
// 0 if it was prolonged, 1 if lost, 2 if replaced, 3 if its session is elsewhere.
//
//rule:resume_lossless.refresh-script
const prolongScript = `
local results = {}
for i = 1, #KEYS do
  local field, want = ARGV[2 * i], ARGV[2 * i + 1]
  local value, expires, rest = redis.call('HGET', KEYS[i], field)
  if value then expires, rest = read(value) end
  if not expires or expires < now then
    results[i] = 1
  elseif rest ~= want then
    results[i] = string.match(rest, '[^|]*$') == string.match(want, '[^|]*$') and 3 or 2
  else
    local later = now + ARGV[1]
    redis.call('HSET', KEYS[i], field, whole(later) .. '|' .. want)
    if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[1]) then
      redis.call('PEXPIREAT', KEYS[i], whole(later))
    end
    results[i] = 0
  end
end
return results
`

// KEYS: epoch, nodes. ARGV[1]: name of the incarnation, if there is none yet. It expires the leases
// of nodes and raises the epoch for each. It precedes every script of nodes.
// rule:R_EPOCH.nodes-script
const nodes = `
local function raise() redis.call('HINCRBY', KEYS[1], 'crashes', 1) end
redis.call('HSETNX', KEYS[1], 'incarnation', ARGV[1])
local here = {}
local all = redis.call('HGETALL', KEYS[2])
for i = 1, #all, 2 do
  local expires, boot, state = string.match(all[i + 1], '^(%d+)|([^|]*)|(%d)$')
  expires = tonumber(expires)
  if not expires or state == '0' and now > expires + {remembered} then
    redis.call('HDEL', KEYS[2], all[i])
  elseif state == '1' and now > expires then
    redis.call('HSET', KEYS[2], all[i], whole(expires) .. '|' .. boot .. '|0')
    raise()
  elseif state == '1' then
    here[all[i]] = boot
  end
end
local function epoch()
  return redis.call('HGET', KEYS[1], 'crashes') or '0',
    redis.call('HGET', KEYS[1], 'incarnation') .. '.' .. replid()
end
local function take(node, boot, ttl)
  redis.call('HSET', KEYS[2], node, whole(now + ttl) .. '|' .. boot .. '|1')
  here[node] = boot
end
`

const epochScript = `
local crashes, incarnation = epoch()
return {1, crashes, incarnation}
`

// ARGV: incarnation, node, boot, ttl, 1 if this life has joined before.
// rule:R_EPOCH.join-script
const joinScript = `
if ARGV[5] == '1' or redis.call('HEXISTS', KEYS[2], ARGV[2]) == 1 then raise() end
take(ARGV[2], ARGV[3], ARGV[4])
local crashes, incarnation = epoch()
return {1, crashes, incarnation, now + ARGV[4]}
`

// ARGV: incarnation, node, boot, 1 if leases of its sessions were dropped.
const leaveScript = `
local value = redis.call('HGET', KEYS[2], ARGV[2])
if value and string.match(value, '|([^|]*)|%d$') == ARGV[3] then
  redis.call('HDEL', KEYS[2], ARGV[2])
end
if ARGV[4] == '1' then raise() end
return {1}
`

// ARGV: incarnation, node, boot, ttl.
const heartbeatScript = `
if here[ARGV[2]] ~= ARGV[3] then return {0} end
take(ARGV[2], ARGV[3], ARGV[4])
local crashes, incarnation = epoch()
local results = {1, crashes, incarnation, now + ARGV[4]}
for node, boot in pairs(here) do
  results[#results + 1] = node
  results[#results + 1] = boot
end
return results
`
