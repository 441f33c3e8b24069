package redis

// issue makes a ticket: user, end of the credentials, API key, time to live.
const issue = `
redis.call('HSET', KEYS[1], 'user', ARGV[1], 'until', ARGV[2], 'key', ARGV[3])
return redis.call('PEXPIRE', KEYS[1], ARGV[4])`

// redeem accepts a ticket once, for an attempt, and then for its session. The same attempt may come twice: a cluster may move the key meanwhile.
//
//rule:ticket_once.redeem-script
const redeem = `
local t = redis.call('HMGET', KEYS[1], 'user', 'until', 'key', 'redeemed', 'session')
if not t[1] then return false end
if not t[4] then
	redis.call('HSET', KEYS[1], 'redeemed', ARGV[2])
elseif t[4] ~= ARGV[2] and (ARGV[1] == '' or t[5] ~= ARGV[1]) then
	return false
end
return {t[1], t[2], t[3]}`

// look accepts a ticket and changes nothing.
const look = `
local t = redis.call('HMGET', KEYS[1], 'user', 'until', 'key')
if not t[1] then return false end
return t`

// hold binds a ticket to a session that a node holds ("bind"), or keeps it alive, unless another session has it by now ("keep"): user, end, API key,
// session, time to live, which of both.
//
//rule:ticket_once.hold-script
const hold = `
local session = redis.call('HGET', KEYS[1], 'session')
if ARGV[6] == 'keep' and session and session ~= ARGV[4] then return 0 end
redis.call('HSETNX', KEYS[1], 'redeemed', '-')
redis.call('HSET', KEYS[1], 'user', ARGV[1], 'until', ARGV[2], 'key', ARGV[3], 'session', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return 1`

// take takes from a bucket, which is full if it is not there: how much, how much comes in a second, how much it holds. It returns what is left.
//
//rule:bounded_use.take-script
const take = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local rate, burst = tonumber(ARGV[2]), tonumber(ARGV[3])
local bucket = redis.call('HMGET', KEYS[1], 'left', 'at')
local left = burst
if bucket[1] then
	left = math.min(burst, tonumber(bucket[1]) + math.max(0, now - tonumber(bucket[2])) * rate / 1000)
end
left = left - tonumber(ARGV[1])
redis.call('HSET', KEYS[1], 'left', tostring(left), 'at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.ceil((burst - left) / rate * 1000) + 1))
return tostring(left)`
