// Package versitygw starts versitygw for tests: a server of the S3 protocol, on a directory.
// `make versitygw-deps` builds it; tests that lack it fail and say so.
package versitygw

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/tidemark-im/tidemark/test/services/process"
)

// The credentials of the server, and its Region.
const (
	AccessKey = "tidemark"
	SecretKey = "the-secret-of-a-test"
	Region    = "eu-central-1"
)

// Server is a running versitygw.
type Server struct {
	home    *process.Home
	port    int
	buckets atomic.Int64
}

// shared is the server of the process. A process has only one, so it is a variable of the package.
var shared = sync.OnceValues(start)

// Shared returns the server of this process. The first call starts it, and it ends with the
// process.
func Shared(t testing.TB) *Server {
	t.Helper()
	s, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// Bucket makes an empty bucket that pages may call, and returns its URL for `serve --attachments`.
// It sets the credentials in the environment of the test.
func (s *Server) Bucket(t *testing.T) string {
	t.Helper()
	for name, value := range Environment() {
		t.Setenv(name, value)
	}
	return s.NewBucket(t, "*")
}

// NewBucket makes an empty bucket that pages of an origin may call, and returns its URL for `serve
// --attachments`.
func (s *Server) NewBucket(t *testing.T, origin string) string {
	t.Helper()
	bucket := fmt.Sprint("bucket-", s.buckets.Add(1))
	if err := os.Mkdir(filepath.Join(s.data(), bucket), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := s.allowPages(t.Context(), bucket, origin); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("s3://%s/%s/files?endpoint=%s", Region, bucket, s.URL())
}

// Objects returns the names of the files in a bucket that NewBucket has made.
func (s *Server) Objects(t *testing.T, bucket string) (names []string) {
	t.Helper()
	at, err := url.Parse(bucket)
	if err != nil {
		t.Fatal(err)
	}
	root := filepath.Join(s.data(), strings.Split(at.Path, "/")[1])
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			names = append(names, strings.TrimPrefix(path, root))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// allowPages sets the CORS rule of docs/attachments.md.
func (s *Server) allowPages(ctx context.Context, bucket, origin string) error {
	client := s3.New(s3.Options{
		Region: Region, BaseEndpoint: aws.String(s.URL()), UsePathStyle: true,
		Credentials: credentials.NewStaticCredentialsProvider(AccessKey, SecretKey, ""),
	})
	_, err := client.PutBucketCors(ctx, &s3.PutBucketCorsInput{
		Bucket: &bucket,
		CORSConfiguration: &types.CORSConfiguration{CORSRules: []types.CORSRule{{
			AllowedOrigins: []string{origin},
			AllowedMethods: []string{http.MethodGet, http.MethodPut},
			AllowedHeaders: []string{"content-type", "if-none-match", "x-amz-checksum-sha256"},
		}}},
	})
	return err
}

// Environment returns the variables with the credentials.
func Environment() map[string]string {
	return map[string]string{
		"AWS_ACCESS_KEY_ID": AccessKey, "AWS_SECRET_ACCESS_KEY": SecretKey,
	}
}

// URL returns the address of the server.
func (s *Server) URL() string { return fmt.Sprint("http://127.0.0.1:", s.port) }

func (s *Server) data() string { return filepath.Join(s.home.Dir(), "data") }

func start() (*Server, error) {
	program, err := find()
	if err != nil {
		return nil, err
	}
	home, err := process.NewHome(process.Settings{Service: "versitygw"})
	if err != nil {
		return nil, err
	}
	s := &Server{home: home}
	metadata := filepath.Join(home.Dir(), "metadata")
	err = errors.Join(os.Mkdir(s.data(), 0o700), os.Mkdir(metadata, 0o700))
	if err != nil {
		return nil, errors.Join(err, home.Close())
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = process.OnFreePort(func(port int) error {
		s.port = port
		server := &process.Program{
			Home: home, Name: "versitygw", File: "versitygw.log", Taken: "address already in use",
			Command: func() *exec.Cmd {
				command := home.Command(program, "--port", fmt.Sprint("127.0.0.1:", port),
					"--region", Region, "--health", "/healthz", "posix", "--sidecar", metadata,
					s.data())
				command.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+AccessKey,
					"ROOT_SECRET_KEY="+SecretKey)
				return command
			},
			Serves: func(string) bool { return s.healthy() },
		}
		return server.Start(ctx)
	})
	if err != nil {
		return nil, errors.Join(err, home.Close())
	}
	return s, nil
}

func (s *Server) healthy() bool {
	answer, err := http.Get(s.URL() + "/healthz")
	if err != nil {
		return false
	}
	http.DefaultClient.CloseIdleConnections()
	return answer.Body.Close() == nil && answer.StatusCode == http.StatusOK
}

// find returns the program that scripts/versitygw-deps has built below .build.
func find() (string, error) {
	dir, err := os.Getwd()
	for ; err == nil && dir != "/"; dir = filepath.Dir(dir) {
		path := filepath.Join(dir, ".build/versitygw")
		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			return path, nil
		}
	}
	return "", errors.New("versitygw is not built; run: make versitygw-deps")
}
