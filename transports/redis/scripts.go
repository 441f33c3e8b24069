package redis

// issue stores a ticket: user, end of the credentials in Unix ms, API key, time to live in ms.
const issue = `
redis.call('HSET', KEYS[1], 'user', ARGV[1], 'until', ARGV[2], 'key', ARGV[3])
return redis.call('PEXPIRE', KEYS[1], ARGV[4])`

// redeem accepts a ticket once, for an attempt, and from then on for its session. The same attempt
// may come twice, because a cluster may move the key meanwhile. The arguments are the session and
// the attempt.
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

// look returns a ticket and changes nothing.
const look = `
local t = redis.call('HMGET', KEYS[1], 'user', 'until', 'key')
if not t[1] then return false end
return t`

// hold binds a ticket to a session ("bind"), or prolongs it unless another session has it ("keep").
// The arguments are user, end of the credentials, API key, session, time to live in ms, and "bind"
// or "keep".
//
//rule:ticket_once.hold-script
const hold = `
local session = redis.call('HGET', KEYS[1], 'session')
if ARGV[6] == 'keep' and session and session ~= ARGV[4] then return 0 end
redis.call('HSETNX', KEYS[1], 'redeemed', '-')
redis.call('HSET', KEYS[1], 'user', ARGV[1], 'until', ARGV[2], 'key', ARGV[3], 'session', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return 1`

// take takes from a bucket and returns what is left. A bucket that does not exist is full. The
// arguments are how much to take, the rate per second, and the burst.
//
//rule:bounded_use.take-script
const take = `
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local rate, burst = tonumber(ARGV[2]), tonumber(ARGV[3])
local bucket = redis.call('HMGET', KEYS[1], 'left', 'at')
local left = burst
if bucket[1] then
	local gained = math.max(0, now - tonumber(bucket[2])) * rate / 1000
	left = math.min(burst, tonumber(bucket[1]) + gained)
end
left = left - tonumber(ARGV[1])
redis.call('HSET', KEYS[1], 'left', tostring(left), 'at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], string.format('%.0f', math.ceil((burst - left) / rate * 1000) + 1))
return tostring(left)`
