package pusher

import (
	"fmt"
	"testing"
	"time"

	"github.com/tidemark-im/tidemark"
)

// TestRounds_are_bounded, also if all of them are young: the chat that was looked at least lately
// is forgotten.
func TestRounds_are_bounded(t *testing.T) {
	p, err := New(Config{Secret: make([]byte, MinSecret)})
	if err != nil {
		t.Fatal(err)
	}
	chat := func(n int) tidemark.ChatID { return tidemark.ChatID(fmt.Sprint("c", n)) }
	now := time.Now()
	kept, forgotten := p.rounds.of(chat(0), now), p.rounds.of(chat(1), now)
	for n := range maxRounds + 10 {
		p.rounds.of(chat(2+n), now)
		p.rounds.of(chat(0), now)
	}
	if len(p.rounds.chats) != maxRounds || p.rounds.lately.Len() != maxRounds {
		t.Errorf("%d chats are remembered in %d places, want %d", len(p.rounds.chats),
			p.rounds.lately.Len(), maxRounds)
	}
	if p.rounds.of(chat(0), now) != kept {
		t.Error("a chat that is looked at all the time was forgotten")
	}
	again := p.rounds.of(chat(1), now)
	p.rounds.end(forgotten) // by a call that has worked on it since before
	if again == forgotten || p.rounds.of(chat(1), now) != again {
		t.Error("the end of a forgotten round ends the next one of its chat")
	}
	p.rounds.end(again)
	p.rounds.end(again)
	if p.rounds.chats[chat(1)] != nil || p.rounds.lately.Len() != len(p.rounds.chats) {
		t.Error("a round that ended is remembered")
	}
}
