package tidemark

import (
	"encoding/json"
	"slices"
	"testing"
)

func TestFilesOf(t *testing.T) {
	for raw, want := range map[string][]string{
		``:                                    nil,
		`[{"a":1}]`:                           nil,
		`[{"s3_ref":null}]`:                   nil,
		`[{"S3_REF":"x"}]`:                    nil,
		`[{"a":{"s3_ref":"x"}}]`:              nil,
		`[{"a":"s3_ref"}]`:                    nil,
		`[{"s3_ref":"x"}]`:                    {"x"},
		`[{"s3\u005fref":"x"}]`:               {"x"},
		`[ {"a":1} , {"s3_ref" : "x"} ]`:      {"", "x"},
		`[{"s3_ref":"\u0078"},{},{"b":[{}]}]`: {"x", "", ""},
	} {
		got, err := FilesOf(json.RawMessage(raw))
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: got %q, %v, want %q", raw, got, err, want)
		}
	}
	for _, raw := range []string{
		`{"s3_ref":"x"}`, `[{"s3_ref":1}]`, `[{"s3_ref":"a/b"}]`, `[{"s3_ref":""}]`,
		`[{"s3_ref":"x"},1]`, `[{"s3_ref"`,
	} {
		if got, err := FilesOf(json.RawMessage(raw)); CodeOf(err) != Invalid {
			t.Errorf("%s: got %q, %v", raw, got, err)
		}
	}
}
