package transports_test

import (
	"strconv"
	"strings"

	"github.com/tidemark-im/tidemark"
)

// bad is a JSON value that a field must not have, and the code of the refusal.
type bad struct{ value, code string }

func quoted(s string) string { return `"` + s + `"` }

// badMetadata returns what metadata cannot be.
func badMetadata() []bad { return badObjects(tidemark.MaxMetadata) }

// badObjects returns what an object of at most most bytes cannot be.
func badObjects(most int) []bad {
	return []bad{{`[]`, invalid}, {`1`, invalid}, {`"x"`, invalid}, {`true`, invalid},
		{`{"a":"\u0000"}`, invalid}, {`{"a":["\ud800"]}`, invalid},
		{`{"\udfff":1}`, invalid}, {`{"a":1e999}`, invalid}, {`{"a":[-1e400]}`, invalid},
		{`{"a":` + strings.Repeat("[", 32) + strings.Repeat("]", 32) + `}`, invalid},
		{strings.Repeat(`{"a":`, 33) + `1` + strings.Repeat(`}`, 33), invalid},
		{`{"a":"` + strings.Repeat("x", most) + `"}`, tooLarge}}
}

// These values are wrong for every field of a kind. If one field takes such a value all the same,
// its row in fields says so.
func badTexts() []bad {
	return []bad{{`1`, invalid}, {`true`, invalid}, {`{}`, invalid}, {`["x"]`, invalid},
		{`"a\u0000b"`, invalid}, {`"\ud800"`, invalid}, {`"\udc00x"`, invalid},
		{`"\ud800\ud800"`, invalid}, {`"\uDBFF\u0041"`, invalid}}
}

func badIDs() []bad {
	return append(badTexts(), []bad{
		{`""`, invalid}, {`"a b"`, invalid}, {`"a/b"`, invalid}, {`"a%2Fb"`, invalid},
		{`"ü"`, invalid}, {`"../team"`, invalid}, {`"a\nb"`, invalid},
		{quoted(strings.Repeat("i", 129)), invalid},
		{quoted(strings.Repeat("i", 5<<10)), invalid},
	}...)
}

func badSequences() []bad {
	return []bad{{`"1"`, invalid}, {`1.5`, invalid}, {`1.0`, invalid}, {`1e3`, invalid},
		{`1e400`, invalid}, {`true`, invalid}, {`{}`, invalid}, {`[1]`, invalid}, {`-0.5`, invalid},
		{`-1`, sequence}, {`-9223372036854775808`, sequence}, {`9007199254740992`, sequence},
		{`9223372036854775807`, sequence}, {`9223372036854775808`, sequence},
		{`18446744073709551616`, sequence}, {strings.Repeat("9", 400), sequence}}
}

func badAcks() []bad { // the chat has one message
	return append(badSequences(), bad{`0`, sequence}, bad{`-0`, sequence}, bad{`2`, sequence})
}

func badLists() []bad {
	return []bad{
		{`{}`, invalid}, {`"a"`, invalid}, {`1`, invalid}, {`true`, invalid}, {`[1]`, invalid},
		{`[null]`, invalid}, {`[[]]`, invalid}, {`[true]`, invalid}, {`["x"]`, invalid},
	}
}

func ids(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = quoted("u" + strconv.Itoa(i))
	}
	return "[" + strings.Join(list, ",") + "]"
}

func badBooleans() []bad {
	return []bad{{`1`, invalid}, {`"true"`, invalid}, {`[]`, invalid}, {`{}`, invalid}}
}

func badEvents() []bad {
	return []bad{{`{}`, invalid}, {`"message.persisted"`, invalid}, {`[1]`, invalid},
		{`["message"]`, invalid}, {`["message.persisted",""]`, invalid}}
}

func badURLs() []bad {
	return append(badTexts(), bad{`""`, invalid}, bad{`"x"`, invalid},
		bad{`"//x.example"`, invalid}, bad{`"ftp://x.example/"`, invalid},
		bad{`"https://u:p@x.example/"`, invalid},
		bad{`"https://x.example:0/"`, invalid}, bad{`"https://"`, invalid},
		bad{`"https://x.example/` + strings.Repeat("a", 2_048) + `"`, invalid})
}
