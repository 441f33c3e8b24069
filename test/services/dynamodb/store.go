package dynamodb

import (
	"bytes"
	"context"
	"crypto/rand"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
)

// Store returns the URL of a store without tables: storage/dynamodb.Migrate makes them. They are
// dropped with the test.
func (s *Server) Store(t testing.TB) string {
	t.Helper()
	prefix := "t" + strings.ToLower(rand.Text()[:16]) + "-"
	t.Cleanup(func() {
		if s.endpoint != os.Getenv(Variable) && s.PID() == 0 {
			return // the tables disappear with the directory
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
		defer cancel()
		if err := s.Drop(ctx, prefix); err != nil {
			t.Errorf("dropping the tables of the test: %v", err)
		}
	})
	return s.URL(prefix)
}

// URL returns the URL of the store whose tables have this prefix.
func (s *Server) URL(prefix string) string {
	return "dynamodb://" + region() + "/" + prefix + "?endpoint=" + s.endpoint
}

// Client returns a client that makes each call once, over a connection that ends with the call.
func (s *Server) Client() *dynamodb.Client {
	options := dynamodb.Options{
		Region:       region(),
		BaseEndpoint: aws.String(s.endpoint),
		Retryer:      aws.NopRetryer{},
		HTTPClient: inMemory{
			&http.Client{Transport: &http.Transport{DisableKeepAlives: true}},
		},
	}
	key, secret := os.Getenv("AWS_ACCESS_KEY_ID"), os.Getenv("AWS_SECRET_ACCESS_KEY")
	if key == "" {
		key, secret = "emulator", "emulator"
	}
	options.Credentials = credentials.NewStaticCredentialsProvider(key, secret,
		os.Getenv("AWS_SESSION_TOKEN"))
	return dynamodb.New(options)
}

// inMemory is an HTTP client that sends calls with a body in memory. With the SDK's own body a fast
// answer may be cut: the SDK closes the body when the answer comes, perhaps before net/http has
// seen its end, and net/http takes that for an error (aws-sdk-go-v2, issue 2737).
type inMemory struct{ *http.Client }

// Do implements dynamodb.HTTPClient.
func (c inMemory) Do(request *http.Request) (*http.Response, error) {
	if request.Body != nil {
		body, err := io.ReadAll(request.Body)
		if err != nil {
			return nil, err
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
	}
	return c.Client.Do(request)
}

// region returns the region of the tables. For an emulator it is only a part of their names.
func region() string {
	if name := os.Getenv("AWS_REGION"); name != "" {
		return name
	}
	return "us-east-1"
}

// Drop deletes the tables with a prefix, of which there may be at most a hundred.
func (s *Server) Drop(ctx context.Context, prefix string) error {
	client := s.Client()
	// Names are sorted, and those after "PREFIX" come first. A table with exactly this name is not
	// ours.
	tables, err := client.ListTables(ctx, &dynamodb.ListTablesInput{
		ExclusiveStartTableName: aws.String(prefix),
	})
	if err != nil {
		return err
	}
	for _, name := range tables.TableNames {
		if !strings.HasPrefix(name, prefix) {
			continue
		}
		_, err := client.DeleteTable(ctx, &dynamodb.DeleteTableInput{TableName: aws.String(name)})
		if err != nil {
			return err
		}
	}
	return nil
}
