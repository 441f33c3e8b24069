package reach

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// The kinds of the documents by which processes know each other: those that deliver, and those that
// rely on an outlet (reliance).
const (
	processKind = "workers"
	reliantKind = "reliant"
)

// maxProcesses is how many of them are read.
const maxProcesses = 1_000

// processes knows which processes work, and by which list of outlets. Each one writes its document
// again and again. A process lives as long as the version of its document changes, by the clock of
// the observer. So clocks need not agree. Only one goroutine may use it.
type processes struct {
	store storage.Documents
	// kind is that of the documents.
	kind string
	own  string
	dead time.Duration
	// version is that of the own document.
	version uint64
	seen    map[string]seen
	agreed  agreed
}

// agreed says since when all living processes know a list.
type agreed struct {
	list  uint64
	since time.Time
}

// seen is what is known of a process.
type seen struct {
	version, list uint64
	changed       time.Time
}

// beat is the value of a process's document.
type beat struct {
	List uint64 `json:"list"`
}

// beat writes the own document, and reads those of the others.
func (p *processes) beat(ctx context.Context, list uint64) error {
	value, err := json.Marshal(beat{list})
	if err != nil {
		return err
	}
	d := storage.Document{Kind: p.kind, Name: p.own, Version: p.version, Value: value}
	p.version, err = p.store.PutDocument(ctx, d)
	if tidemark.CodeOf(err) == tidemark.Conflict {
		// An attempt got no answer, or another process has removed the document.
		return p.recover(ctx)
	}
	if err != nil {
		return err
	}
	return p.look(ctx)
}

// recover learns the version of the own document. The next beat writes it.
func (p *processes) recover(ctx context.Context) error {
	found, _, err := p.store.Documents(ctx, p.kind, "", maxProcesses)
	if err != nil {
		return err
	}
	p.version = 0
	for _, d := range found {
		if d.Name == p.own {
			p.version = d.Version
		}
	}
	return storage.Outdated(p.kind, p.own)
}

// look reads the documents of all processes, and removes those of dead ones.
func (p *processes) look(ctx context.Context) error {
	found, _, err := p.store.Documents(ctx, p.kind, "", maxProcesses)
	if err != nil {
		return err
	}
	now := time.Now()
	present := make(map[string]seen, len(found))
	for _, d := range found {
		var value beat
		if err := json.Unmarshal(d.Value, &value); err != nil {
			continue // It counts as a process without a list, until it is removed.
		}
		before, known := p.seen[d.Name]
		if !known || before.version != d.Version {
			before = seen{version: d.Version, list: value.List, changed: now}
		}
		present[d.Name] = before
		if now.Sub(before.changed) > 4*p.dead {
			d.Value = nil
			_, _ = p.store.PutDocument(ctx, d) // Another process may have removed it.
		}
	}
	p.seen = present
	return nil
}

// leave removes the own document, so that the others need not wait.
func (p *processes) leave(ctx context.Context) {
	if p.version > 0 {
		_, _ = p.store.PutDocument(ctx, // Otherwise they wait.
			storage.Document{Kind: p.kind, Name: p.own, Version: p.version})
	}
}

// owns reports whether this process is the one that works on something. All processes that see the
// same others agree. While they do not, several may own it, or none for a moment.
func (p *processes) owns(what string) bool {
	own := weight(p.own, what)
	for name, s := range p.seen {
		if name != p.own && time.Since(s.changed) <= p.dead {
			if w := weight(name, what); w > own || w == own && name > p.own {
				return false
			}
		}
	}
	return true
}

// weight is the weight of a process for something (rendezvous hashing).
func weight(process, what string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(process))
	h.Write([]byte{0})
	h.Write([]byte(what))
	// FNV's upper bits depend little on the last bytes.
	x := h.Sum64()
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	x *= 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// known returns for how long all living processes have worked by a list, or a newer one.
func (p *processes) known(list uint64) time.Duration {
	for _, s := range p.seen {
		if time.Since(s.changed) <= p.dead && s.list < list {
			p.agreed = agreed{}
			return 0
		}
	}
	if p.agreed.list != list {
		p.agreed = agreed{list, time.Now()}
	}
	return time.Since(p.agreed.since)
}
