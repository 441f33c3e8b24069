package sqlite

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/gofrs/uuid/v5"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/storage"
)

// cpuMicroseconds returns the user and system time of this process.
func cpuMicroseconds(b *testing.B) float64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e3
}

// measure reports the CPU time and commits per operation of do, which makes b.N operations.
func measure(b *testing.B, s *Store, do func()) {
	b.ReportAllocs()
	commits := s.writer.commits.Load()
	before := cpuMicroseconds(b)
	b.ResetTimer()
	do()
	b.StopTimer()
	b.ReportMetric((cpuMicroseconds(b)-before)/float64(b.N), "cpu-µs/op")
	b.ReportMetric(float64(s.writer.commits.Load()-commits)/float64(b.N), "commits/op")
}

func newID() string { return uuid.Must(uuid.NewV7()).String() }

// benchStore returns a store with a number of chats of n members each.
func benchStore(b *testing.B, chats, n int) (*Store, []storage.NewChat) {
	b.Helper()
	return benchStoreOf(b, tidemark.Group, chats, n)
}

func benchStoreOf(b *testing.B, kind tidemark.ChatType, chats, n int) (*Store, []storage.NewChat) {
	b.Helper()
	s := openTest(b, filepath.Join(b.TempDir(), "bench.db"))
	list := make([]storage.NewChat, chats)
	for i := range list {
		list[i] = storage.NewChat{
			ID:        tidemark.ChatID(newID()),
			Type:      kind,
			History:   tidemark.HistoryFull,
			CreatedAt: time.Now(),
		}
		for range n {
			list[i].Members = append(list[i].Members, tidemark.UserID(newID()))
		}
		if kind == tidemark.Group {
			list[i].Creator = list[i].Members[0]
		}
		if _, _, err := s.CreateChat(b.Context(), list[i]); err != nil {
			b.Fatal(err)
		}
	}
	return s, list
}

// spread runs op for 0..b.N−1 on a number of goroutines.
func spread(b *testing.B, producers int, op func(i int) error) {
	var next atomic.Int64
	var group sync.WaitGroup
	for range producers {
		group.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= b.N {
					return
				}
				if err := op(i); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	group.Wait()
}

func BenchmarkAppend(b *testing.B) {
	for _, kind := range []tidemark.ChatType{tidemark.Direct, tidemark.Group} {
		for _, chats := range []int{50, 1} {
			for _, producers := range []int{64, 400, 1} {
				name := fmt.Sprintf("%s/chats=%d/producers=%d", kind, chats, producers)
				b.Run(name, func(b *testing.B) { benchAppend(b, kind, chats, producers) })
			}
		}
	}
}

func benchAppend(b *testing.B, kind tidemark.ChatType, chats, producers int) {
	content := strings.Repeat("message ", 25)
	s, list := benchStoreOf(b, kind, chats, 2)
	measure(b, s, func() {
		spread(b, producers, func(i int) error {
			chat := &list[i%chats]
			_, err := storage.AppendOne(b.Context(), s, tidemark.Draft{
				Kind:            tidemark.KindMessage,
				ChatID:          chat.ID,
				SenderID:        chat.Members[i/chats%2],
				ClientMessageID: newID(),
				Content:         content,
				ContentType:     tidemark.DefaultContentType,
				MessageID:       tidemark.MessageID(newID()),
				CreatedAt:       time.Now(),
			})
			return err
		})
	})
}

// fill appends n messages to each chat.
func fill(b *testing.B, s *Store, chats []storage.NewChat, n int) {
	var group sync.WaitGroup
	for _, chat := range chats {
		group.Go(func() {
			for range n {
				if _, err := storage.AppendOne(b.Context(), s, tidemark.Draft{
					Kind:            tidemark.KindMessage,
					ChatID:          chat.ID,
					SenderID:        chat.Creator,
					ClientMessageID: newID(),
					Content:         strings.Repeat("message ", 25),
					ContentType:     tidemark.DefaultContentType,
					MessageID:       tidemark.MessageID(newID()),
					CreatedAt:       time.Now(),
				}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	group.Wait()
}

// BenchmarkAdvance counts rows: one operation is one watermark of a batch.
func BenchmarkAdvance(b *testing.B) {
	for _, batch := range []int{50, 1} {
		b.Run(fmt.Sprintf("batch=%d", batch), func(b *testing.B) {
			const chats, users = 50, 20
			s, list := benchStore(b, chats, users)
			// A high head allows every raise.
			if err := s.change(b.Context(), func(w *writer) error {
				clear(w.chats)
				return w.c.exec("UPDATE chats SET head = 1000000000")
			}); err != nil {
				b.Fatal(err)
			}
			producers := 64 / batch
			measure(b, s, func() {
				var next atomic.Int64
				var group sync.WaitGroup
				for range max(producers, 4) {
					group.Go(func() {
						for {
							first := int(next.Add(int64(batch))) - batch
							if first >= b.N {
								return
							}
							rows := make([]storage.Advance, batch)
							for i := range rows {
								n := first + i
								chat := &list[n%chats]
								rows[i] = storage.Advance{
									User:  chat.Members[n/chats%users],
									Chat:  chat.ID,
									Raise: tidemark.Raise{Acked: tidemark.Sequence(n + 1)},
									Now:   time.Now(),
								}
							}
							if _, err := s.Advance(b.Context(), rows); err != nil {
								b.Error(err)
							}
						}
					})
				}
				group.Wait()
			})
		})
	}
}

func BenchmarkMark_standing(b *testing.B) {
	s, list := benchStore(b, 50, 2)
	rows := make([]tidemark.PendingDelivery, len(list))
	for i, chat := range list {
		rows[i] = tidemark.PendingDelivery{
			UserID:           chat.Members[1],
			ChatID:           chat.ID,
			FirstUndelivered: 1,
		}
	}
	if _, err := s.Mark(b.Context(), rows); err != nil {
		b.Fatal(err)
	}
	measure(b, s, func() {
		spread(b, 64, func(i int) error {
			row := rows[i%len(rows)]
			row.FirstUndelivered = tidemark.Sequence(i + 1)
			_, err := s.Mark(b.Context(), []tidemark.PendingDelivery{row})
			return err
		})
	})
}

func BenchmarkMark_and_clear(b *testing.B) {
	s, list := benchStore(b, 64, 2)
	measure(b, s, func() {
		spread(b, 64, func(i int) error {
			chat := &list[i%len(list)]
			if _, err := s.Mark(b.Context(), []tidemark.PendingDelivery{
				{UserID: chat.Creator, ChatID: chat.ID, FirstUndelivered: 1},
			}); err != nil {
				return err
			}
			_, err := s.Clear(b.Context(), []storage.Clear{
				{User: chat.Creator, Chat: chat.ID, Through: 1},
			})
			return err
		})
	})
}

func BenchmarkRange_50(b *testing.B) {
	s, list := benchStore(b, 20, 2)
	fill(b, s, list, 200)
	measure(b, s, func() {
		spread(b, 4, func(i int) error {
			got, err := s.Ranges(b.Context(), []storage.Range{
				{Chat: list[i%len(list)].ID, After: tidemark.Sequence(i % 150), Limit: 50},
			})
			if err == nil && len(got[0]) != 50 {
				err = fmt.Errorf("got %d messages, want 50", len(got[0]))
			}
			return err
		})
	})
}

func BenchmarkBehind_50(b *testing.B) {
	s := openTest(b, filepath.Join(b.TempDir(), "bench.db"))
	var chats []storage.NewChat
	for range 50 {
		chat := storage.NewChat{
			ID:        tidemark.ChatID(newID()),
			Type:      tidemark.Group,
			History:   tidemark.HistoryFull,
			CreatedAt: time.Now(),
			Creator:   "anna",
			Members:   []tidemark.UserID{"anna", "ben"},
		}
		if _, _, err := s.CreateChat(b.Context(), chat); err != nil {
			b.Fatal(err)
		}
		chats = append(chats, chat)
	}
	fill(b, s, chats, 1)
	measure(b, s, func() {
		spread(b, 4, func(int) error {
			lags, _, _, err := s.Behind(b.Context(), "ben", storage.BehindQuery{Limit: 100})
			if err == nil && len(lags) != 50 {
				err = fmt.Errorf("got %d chats, want 50", len(lags))
			}
			return err
		})
	})
}

func BenchmarkChatsOf_20(b *testing.B) {
	s := openTest(b, filepath.Join(b.TempDir(), "bench.db"))
	var chats []storage.NewChat
	for range 100 {
		chat := storage.NewChat{
			ID:        tidemark.ChatID(newID()),
			Type:      tidemark.Group,
			History:   tidemark.HistoryFull,
			CreatedAt: time.Now(),
			Creator:   "anna",
			Members:   []tidemark.UserID{"anna", "ben"},
		}
		if _, _, err := s.CreateChat(b.Context(), chat); err != nil {
			b.Fatal(err)
		}
		chats = append(chats, chat)
	}
	fill(b, s, chats, 20)
	measure(b, s, func() {
		spread(b, 4, func(int) error {
			list, _, err := s.ChatsOf(b.Context(), "ben", storage.ChatsPage{Limit: 20})
			if err == nil && len(list) != 20 {
				err = fmt.Errorf("got %d chats, want 20", len(list))
			}
			return err
		})
	})
}

func BenchmarkStates_50(b *testing.B) {
	s, list := benchStore(b, 50, 2)
	fill(b, s, list, 1)
	var keys []storage.StateKey
	var rows []storage.Advance
	for _, chat := range list {
		keys = append(keys, storage.StateKey{User: chat.Creator, Chat: chat.ID})
		rows = append(rows, storage.Advance{
			User:  chat.Creator,
			Chat:  chat.ID,
			Raise: tidemark.Raise{Acked: 1},
			Now:   time.Now(),
		})
	}
	if _, err := s.Advance(b.Context(), rows); err != nil {
		b.Fatal(err)
	}
	measure(b, s, func() {
		spread(b, 4, func(int) error {
			_, err := s.States(b.Context(), keys)
			return err
		})
	})
}
