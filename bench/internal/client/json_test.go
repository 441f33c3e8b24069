package client

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestObject_walks_as_encoding_json_reads(t *testing.T) {
	for _, raw := range []string{
		`{}`,
		`{"a":1}`,
		` { "a" : 1 , "b" : "x" } `,
		`{"a":{"b":[1,{"c":"}"}]},"d":"\"","e":"\\","f":[],"g":null,"h":true,"i":-1.5e3}`,
		`{"content":"quote \" brace } bracket ] comma ,","z":"\\\\\""}`,
	} {
		var want map[string]json.RawMessage
		if err := json.Unmarshal([]byte(raw), &want); err != nil {
			t.Fatal(err)
		}
		got := map[string]json.RawMessage{}
		o := NewObject([]byte(raw))
		for {
			key, value, ok := o.Next()
			if !ok {
				break
			}
			got[string(key)] = value
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", raw, diff)
		}
	}
}

func TestArray_walks_its_elements(t *testing.T) {
	a := NewArray([]byte(` [ {"a":[1]} , "x]" ,3] `))
	var got []string
	for {
		value, ok := a.Next()
		if !ok {
			break
		}
		got = append(got, string(value))
	}
	if diff := cmp.Diff([]string{`{"a":[1]}`, `"x]"`, `3`}, got); diff != "" {
		t.Error(diff)
	}
}

func TestArray_end_is_final_when_the_buffer_is_used_again(t *testing.T) {
	buffer := []byte(`[1]`)
	a := NewArray(buffer)
	a.Next()
	if value, ok := a.Next(); ok {
		t.Fatalf("a second element: %s", value)
	}
	copy(buffer, `777`)
	if value, ok := a.Next(); ok {
		t.Errorf("an element after the end: %s", value)
	}
}

func FuzzObject_ends(f *testing.F) {
	f.Add([]byte(`{"a":{"b":"\\"}}`))
	f.Add([]byte(`{"a`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		o := NewObject(raw)
		for range len(raw) + 1 {
			if _, _, ok := o.Next(); !ok {
				return
			}
		}
		t.Errorf("%q has more members than bytes", raw)
	})
}

func TestMessage_content_tells_when_and_which(t *testing.T) {
	content := AppendContent(nil, 12345, "bench-s-1", 200)
	if len(content) != 200 {
		t.Errorf("content of %d bytes, want 200", len(content))
	}
	body := AppendSend(nil, "c1", "bench-s-1", content)
	if !json.Valid(body) {
		t.Fatalf("invalid JSON: %s", body)
	}
	m := ParseMessage(append([]byte(`{"sequence":9,`), body[1:]...))
	sent, digest, ok := ReadContent(m.Content)
	if !ok || sent != 12345 || digest != DigestOf("bench-s-1") || m.Sequence != 9 ||
		string(m.Chat) != "c1" {
		t.Errorf("sent %d, digest right %v, ok %v, sequence %d, chat %q",
			sent, digest == DigestOf("bench-s-1"), ok, m.Sequence, m.Chat)
	}
	if _, _, ok := ReadContent([]byte("hello there")); ok {
		t.Error("a foreign message is taken for one of the load")
	}
}
