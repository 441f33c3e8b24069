package transports_test

import (
	"strings"

	"github.com/tidemark-im/tidemark/reach/reachtest"
)

// pushFields are those of fields that belong to push notifications.
func pushFields() []field {
	return []field{
		{"registerDevice", "platform", `{"address":"x","platform":%s}`,
			append(badTexts(), bad{`null`, invalid}, bad{`""`, invalid}, bad{`"pigeon"`, invalid})},
		{"registerDevice", "app", `{"platform":"fcm","address":"x","app":%s}`,
			append(badTexts(), bad{`"a b"`, invalid},
				bad{quoted(strings.Repeat("a", 256)), invalid})},
		{"registerDevice", "environment", `{"platform":"fcm","address":"x","environment":%s}`,
			append(badTexts(), bad{`""`, invalid}, bad{`"test"`, invalid},
				bad{`"sandbox"`, invalid})},
		{"registerDevice", "address", `{"platform":"fcm","address":%s}`,
			append(badTexts(), bad{`null`, invalid}, bad{`""`, invalid}, bad{`"a b"`, invalid},
				bad{quoted(strings.Repeat("a", 2049)), invalid})},
		{"registerDevice", "address", `{"platform":"webpush","address":%s,"keys":{"p256dh":"` +
			reachtest.P256dh + `","auth":"` + reachtest.Auth + `"}}`,
			[]bad{{`"refused"`, invalid}}},
		{"registerDevice", "keys", `{"platform":"webpush","address":"https://x.example","keys":%s}`,
			[]bad{{`null`, invalid}, {`1`, invalid}, {`"x"`, invalid}, {`[]`, invalid}}},
		{"registerDevice", "p256dh", `{"platform":"webpush","address":"https://x.example",` +
			`"keys":{"auth":"` + reachtest.Auth + `","p256dh":%s}}`,
			append(badTexts(), bad{`null`, invalid}, bad{`"BDd3"`, invalid}, bad{`"+"`, invalid})},
		{"registerDevice", "auth", `{"platform":"webpush","address":"https://x.example",` +
			`"keys":{"p256dh":"` + reachtest.P256dh + `","auth":%s}}`,
			append(badTexts(), bad{`null`, invalid}, bad{`"AAAA"`, invalid})},
		{"putPushSettings", "display_name", `{"display_name":%s}`,
			append(badTexts(), bad{quoted(strings.Repeat("a", 201)), invalid},
				bad{`"a\u202eb"`, invalid}, bad{`"a\nb"`, invalid}, bad{`" "`, invalid})},
		{"putPushSettings", "preview", `{"preview":%s}`,
			append(badTexts(), bad{`""`, invalid}, bad{`"half"`, invalid})},
		{"putPushSettings", "quiet_hours", `{"quiet_hours":%s}`,
			[]bad{{`1`, invalid}, {`"22:00"`, invalid}, {`[]`, invalid}, {`{}`, invalid},
				{`{"start":"22:00","end":"24:00","time_zone":"UTC"}`, invalid},
				{`{"start":"22:00","end":"07:00","time_zone":"Mars"}`, invalid}}},
		{"putPushSettings", "mutes", `{"mutes":%s}`,
			append(badLists(), bad{`[{}]`, invalid},
				bad{`[{"chat_id":"a"},{"chat_id":"a"}]`, invalid})},
		{"putPushSettings", "chat_id", `{"mutes":[{"chat_id":%s}]}`, badIDs()},
		{"putPushSettings", "ends_at", `{"mutes":[{"chat_id":"a","ends_at":%s}]}`,
			append(badTexts(), bad{`""`, invalid}, bad{`"tomorrow"`, invalid})},
		{"acknowledgePush", "ack_token", `{"ack_token":%s}`,
			append(badTexts(), bad{`null`, invalid}, bad{`""`, invalid})},
	}
}
