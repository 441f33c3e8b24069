package dynamodb

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// wordy is a network that looks for reserved words in calls. An emulator may know fewer of them. In
// a transaction, the refusal looks like a failed condition.
type wordy struct {
	*http.Transport
	t testing.TB
}

func newWordy(t testing.TB) *wordy {
	return &wordy{Transport: &http.Transport{MaxIdleConnsPerHost: 256}, t: t}
}

func (w *wordy) RoundTrip(request *http.Request) (*http.Response, error) {
	if request.Body != nil {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return nil, err
		}
		request = request.Clone(request.Context())
		request.Body = io.NopCloser(bytes.NewReader(body))
		for _, e := range expressions(body) {
			if word := rawName(e); word != "" {
				w.t.Errorf("the expression %q has the name %q, which may be one of DynamoDB's "+
					"reserved words: write it as #name, or look it up and add it to the test",
					e, word)
			}
		}
	}
	return w.Transport.RoundTrip(request)
}

// expressions returns all expressions of a call, including those of its actions.
func expressions(body []byte) (found []string) {
	if !bytes.Contains(body, []byte("Expression")) {
		return nil
	}
	decoder, isKey := json.NewDecoder(bytes.NewReader(body)), false
	for {
		token, err := decoder.Token()
		if err != nil {
			return found
		}
		text, isText := token.(string)
		if isKey && isText {
			found = append(found, text)
		}
		isKey = isText && strings.HasSuffix(text, "Expression")
	}
}

const words = `[#:]?[A-Za-z_][A-Za-z_0-9]*`

// rawName returns the first name in an expression that may be a reserved word, "" if there is none.
// No reserved word has an underscore (DynamoDB, Reserved words). The names without an underscore
// that the store uses are not in that list.
func rawName(expression string) string {
	for _, word := range regexp.MustCompile(words).FindAllString(expression, -1) {
		switch {
		case strings.ContainsAny(word, "#:_"):
		case slices.Contains([]string{"SET", "REMOVE", "AND", "OR", "BETWEEN", "contains"}, word):
		case slices.Contains([]string{
			"head", "change", "changing", "version", "id", "senders", "sent", "uncounted",
			"life", "floor", "expired", "bans", "blocks", "closed", "kind",
		}, word):
		default:
			return word
		}
	}
	return ""
}

func TestExpressions_reserved_words_are_found(t *testing.T) {
	for _, tc := range []struct{ body, want string }{
		{`{"UpdateExpression":"SET #n = :n, member_count = :count, head = :head"}`, ""},
		{`{"TransactItems":[{"Put":{"ConditionExpression":` +
			`"attribute_not_exists(id) OR expires_at <= :now"}}]}`, ""},
		{`{"UpdateExpression":"SET member = :yes"}`, "member"},
		{`{"TransactItems":[{"Put":{"Item":{}}},{"Update":{"ConditionExpression":` +
			`"attribute_not_exists(large)"}}]}`, "large"},
		{
			`{"KeyConditionExpression":"chat_id = :c AND sequence BETWEEN :from AND :to"}`,
			"sequence",
		},
	} {
		got := ""
		for _, e := range expressions([]byte(tc.body)) {
			got += rawName(e)
		}
		if got != tc.want {
			t.Errorf("of %s: %q, want %q", tc.body, got, tc.want)
		}
	}
}
