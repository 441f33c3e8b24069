package test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
)

// TestBot_answers_each_message_once runs the program examples/bot, which docs/bots.md shows. The
// server is killed under it, and the bot is killed and started again.
func TestBot_answers_each_message_once(t *testing.T) {
	t.Parallel() // It waits more than it works.
	p := newProcess(t)
	address := p.serve()
	alice := as(address, "alice")
	chat := alice.direct(t, "echo")
	path := filepath.Join(t.TempDir(), "bot")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path,
		module+"/examples/bot").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	log := &output{}
	start := func() *exec.Cmd {
		bot := exec.CommandContext(t.Context(), path, "-url", alice.url)
		bot.Stdout, bot.Stderr = log, log
		must(t, bot.Start())
		return bot
	}
	bot := start()
	defer func() {
		must(t, bot.Process.Signal(syscall.SIGTERM))
		if err := bot.Wait(); err != nil {
			t.Errorf("the bot ended with %v after SIGTERM", err)
		}
		if t.Failed() {
			t.Log(log.String())
		}
	}()
	const rounds, each = 4, 10
	for round := range rounds {
		for n := range each {
			alice.send(t, chat, fmt.Sprint(round*each+n))
		}
		switch round {
		case 0:
			must(t, p.process.Kill())
			_ = p.wait()
			p.start()
		case 1:
			must(t, bot.Process.Kill())
			_ = bot.Wait()
			bot = start()
		}
	}
	var got struct {
		Messages []message `json:"messages"`
	}
	until(t, "everything is answered", func() bool {
		alice.call(t, "GET", "/chats/"+chat+"/messages?after_sequence=0&limit=1000", nil, &got)
		return len(got.Messages) >= 2*rounds*each
	}, log.String)
	answers, order := map[string]int{}, 0
	for _, m := range got.Messages {
		if m.SenderID != "echo" {
			continue
		}
		if answers[m.Content]++; m.Content != fmt.Sprint(order) {
			t.Errorf("answer %d is %s", order, m.Content)
		}
		order++
	}
	if len(answers) != rounds*each || order != rounds*each {
		t.Errorf("%d answers to %d messages, want one to each of %d", order, len(answers),
			rounds*each)
	}
	var s state
	echo := as(address, "echo")
	until(t, "the bot has read and acknowledged", func() bool {
		echo.call(t, "GET", "/chats/"+chat+"/delivery-state", nil, &s)
		return s.Read > 0 && s.Acked > 0
	}, func() string { return fmt.Sprintf("%+v", s) })
}
