package limit

import (
	"math"
	"net/http"
	"strconv"
	"strings"

	"github.com/tidemark-im/tidemark"
)

// Rate is how much a user may take per second, lastingly, and at once. The zero value stands for a
// default.
type Rate struct {
	PerSecond float64
	Burst     int
}

// Unlimited is the rate that refuses nothing.
var Unlimited = Rate{PerSecond: math.Inf(1), Burst: math.MaxInt32}

// burstSeconds is how many seconds of a rate a user may take at once if nothing else is said.
const burstSeconds = 10

// most bounds the numbers of a Rate.
const most = 1_000_000_000

// UnmarshalText reads a rate: "50" is 50 a second, and 500 at once; "50:200" is 50 a second, and
// 200 at once; "none" is Unlimited.
//
// Error: Invalid.
func (r *Rate) UnmarshalText(text []byte) error {
	if string(text) == "none" {
		*r = Unlimited
		return nil
	}
	perSecond, burst, both := strings.Cut(string(text), ":")
	n, err := strconv.ParseFloat(perSecond, 64)
	if err != nil || !(n > 0 && n <= most) {
		return malformed(text)
	}
	read := Rate{PerSecond: n, Burst: max(LargeCall, int(math.Ceil(n*burstSeconds)))}
	if both {
		read.Burst, err = strconv.Atoi(burst)
		if err != nil || read.Burst < LargeCall || read.Burst > most {
			return malformed(text)
		}
	}
	*r = read
	return nil
}

func malformed(text []byte) error {
	return tidemark.Errorf(tidemark.Invalid,
		"%q is no rate; write PER_SECOND or PER_SECOND:AT_ONCE, such as 50:500, where AT_ONCE is "+
			"at least %d, or none", text, LargeCall)
}

// Bucket is the rule by which the buckets of all users fill. Its name is part of their keys.
type Bucket struct {
	Name string
	Rate
}

// what says in words what the bucket bounds.
func (b Bucket) what() string {
	name, ofBackend := strings.CutPrefix(b.Name, "backend-")
	words := map[string]string{
		"silent": "edits, redactions, reactions, pins and control messages together",
		"calls":  "calls that send nothing", "statuses": "delivery statuses",
	}[name]
	if words == "" {
		words = name
	}
	if ofBackend {
		words += " of a backend for one user"
	}
	return words
}

// Quota is what an answer says about the caller's bucket. The zero value says nothing.
type Quota struct {
	of *buckets
	// left is what the caller may still take at once.
	left float64
}

// Put sets the fields RateLimit-Policy and RateLimit of an answer's header (the IETF's
// draft-ietf-httpapi-ratelimit-headers). r is what the caller may still take at once. t is in how
// many seconds the bucket will be full again.
func (q Quota) Put(h http.Header) {
	if q.of == nil {
		return
	}
	b := q.of.bucket
	left := max(0, int(q.left))
	full := int(math.Ceil(float64(b.Burst-left) / b.PerSecond))
	h["Ratelimit-Policy"] = q.of.policy
	h.Set("RateLimit", `"`+b.Name+`";r=`+strconv.Itoa(left)+`;t=`+strconv.Itoa(full))
}
