package endpoint

import (
	"context"
	"fmt"
	"hash/crc32"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
)

// TestClient_takes_whole_answers_only: an incomplete or foreign answer is an error, and never a
// missing item.
func TestClient_takes_whole_answers_only(t *testing.T) {
	alone(t)
	const good = `{"Item":{"id":{"S":"x"}}}`
	sum := func(body string) string { return fmt.Sprint(crc32.ChecksumIEEE([]byte(body))) }
	for _, tc := range []struct {
		name, body, crc string
		status          int
		want            string // in the error; "" means no error
	}{
		{"whole", good, sum(good), 200, ""},
		{"whole, from an emulator without checksums", good, "", 200, ""},
		{"no item", "{}", sum("{}"), 200, ""},
		{"empty", "", sum(""), 200, "not DynamoDB's"},
		{"null", "null", sum("null"), 200, "not DynamoDB's"},
		{"another server's page", "<html>Welcome</html>", "", 200, "not DynamoDB's"},
		{"a refusal that is not DynamoDB's", "<html>Forbidden</html>", "", 403, "not DynamoDB's"},
		{
			"a refusal",
			`{"__type":"x#ResourceNotFoundException"}`, "", 400, "ResourceNotFoundException",
		},
		{"a balancer's page", "<html>Bad gateway</html>", "", 502, "StatusCode: 502"},
		{"its end is missing", good[:12], "", 200, "deserialization"},
		{"a byte was changed", strings.Replace(good, "x", "y", 1), sum(good), 200, "damaged"},
		{"a checksum that is none", good, "none", 200, "damaged"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			server := httptest.NewServer(
				http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					if tc.crc != "" {
						w.Header().Set("X-Amz-Crc32", tc.crc)
					}
					w.WriteHeader(tc.status)
					fmt.Fprint(w, tc.body)
				}))
			defer server.Close()
			api, err := mustParse(t,
				"dynamodb://us-east-1/?endpoint="+server.URL).Client(context.Background(), nil)
			if err != nil {
				t.Fatal(err)
			}
			out, err := api.GetItem(t.Context(), &dynamodb.GetItemInput{
				TableName: aws.String("t"),
				Key: map[string]types.AttributeValue{
					"id": &types.AttributeValueMemberS{Value: "x"},
				},
			})
			switch {
			case tc.want == "" && (err != nil || (out.Item["id"] != nil) != (tc.body == good)):
				t.Errorf("got %v, %v", out, err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("the error is %v, want one with %q", err, tc.want)
			}
		})
	}
}
