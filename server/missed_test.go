package server_test

import (
	"testing"
	"testing/synctest"
	"time"
)

// What no node handed over, another device of the user may have got when it was opened, and acknowledged: his watermark says nothing of what this session has.
func TestR_EPOCH_a_live_session_gets_what_another_device_acknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		a := w.node("a")
		chat := a.chat("ab", "alice", "bob")
		laptop := a.open("bob")
		a.send("alice", chat)
		want(t, "before", messagesOf(laptop.drain()), "message ab 1")
		w.ghost("dead", time.Second)
		w.appendDead("alice", chat, "k")
		phone := a.open("bob")
		want(t, "the phone", messagesOf(phone.drain()), "message ab 1", "message ab 2")
		a.ack("bob", chat, 2, 0)
		time.Sleep(time.Minute)
		want(t, "the laptop", messagesOf(laptop.drain()), "message ab 2")
		want(t, "the phone again", messagesOf(phone.drain()))
	})
}
