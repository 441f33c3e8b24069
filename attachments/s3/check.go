package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/attachments"
)

// mostSkew is how far the clock of the bucket may be from ours. Beyond 15 minutes S3 refuses what
// we sign, and URLs end too early or too late by the difference.
const mostSkew = time.Minute

// Check uploads a small file as clients do, downloads it, and removes it. It looks whether pages of
// some origins may upload. The error joins one error for each problem, and says what to do.
func (b *S3) Check(ctx context.Context, origins []string) error {
	content := []byte("tidemark doctor: this file can be removed")
	f := &attachments.File{
		ID: rand.Text(), Name: "doctor.txt", Type: "text/plain", Size: int64(len(content)),
		Sum: sha256.Sum256(content),
	}
	until := b.now().Add(time.Minute)
	up, err := b.SignUpload(ctx, "", f, until)
	if err != nil {
		return err
	}
	uploaded, err := call(ctx, up.Method, up.URL, up.Header, content)
	if err != nil {
		return fmt.Errorf("%s cannot be reached: %w; check --attachments, and this machine's way "+
			"to it", b.origin, err)
	}
	errs := []error{b.skewed(uploaded)}
	if uploaded.code >= http.StatusMultipleChoices {
		return errors.Join(append(errs, fmt.Errorf("the upload of a file to the bucket %s is "+
			"answered %s: %s; give this server s3:PutObject", b.at.Bucket, uploaded.status,
			uploaded.said))...)
	}
	errs = append(errs, b.checkStored(ctx, f, content, until))
	if err := b.Remove(ctx, f.ID); err != nil {
		errs = append(errs, fmt.Errorf("the file %s cannot be removed: %w; give this server "+
			"s3:DeleteObject", *b.key(f.ID), errors.Unwrap(err)))
	}
	for _, origin := range origins {
		errs = append(errs, mayUpload(ctx, up, origin))
	}
	return errors.Join(errs...)
}

// checkStored checks that an uploaded file can be seen and downloaded.
func (b *S3) checkStored(
	ctx context.Context, f *attachments.File, content []byte, until time.Time,
) error {
	if stored, err := b.Stored(ctx, f); err != nil || !stored {
		return fmt.Errorf("the uploaded file cannot be seen (%w); give this server s3:GetObject",
			causeOf(err))
	}
	address, err := b.SignDownload(ctx, "", f, "attachment", until)
	if err != nil {
		return err
	}
	downloaded, err := call(ctx, http.MethodGet, address, nil, nil)
	switch {
	case err != nil:
		return fmt.Errorf("the uploaded file cannot be downloaded: %w; try again", err)
	case downloaded.code != http.StatusOK || downloaded.said != string(content):
		return fmt.Errorf("the download of the uploaded file is answered %s; give this server "+
			"s3:GetObject", downloaded.status)
	}
	return nil
}

// causeOf returns the cause of an error, or an error that says that there is no file.
func causeOf(err error) error {
	if err == nil {
		return tidemark.Errorf(tidemark.NotFound, "the bucket has no such file")
	}
	return errors.Unwrap(err)
}

// skewed returns an error if an answer is of another time.
func (b *S3) skewed(a answer) error {
	date, err := http.ParseTime(a.header.Get("Date"))
	if skew := date.Sub(b.now()).Round(time.Second); err == nil && skew.Abs() > mostSkew {
		return fmt.Errorf("the clock of this machine differs by %v from that of %s; set it", skew,
			b.origin)
	}
	return nil
}

// mayUpload asks as browsers do before an upload (CORS).
func mayUpload(ctx context.Context, up attachments.Request, origin string) error {
	page := origin
	if page == "*" {
		page = "https://example.com"
	}
	var names []string
	for name := range up.Header {
		names = append(names, strings.ToLower(name))
	}
	slices.Sort(names)
	asked, err := call(ctx, http.MethodOptions, up.URL, map[string]string{
		"Origin": page, "Access-Control-Request-Method": up.Method,
		"Access-Control-Request-Headers": strings.Join(names, ","),
	}, nil)
	if err != nil {
		return err
	}
	allowed := asked.header.Get("Access-Control-Allow-Origin")
	if asked.code >= http.StatusMultipleChoices || allowed != "*" && allowed != page {
		return fmt.Errorf("pages of %s cannot upload: the bucket answers their question %s; add a "+
			"CORS rule for this origin, with GET, PUT and the headers %s", origin, asked.status,
			strings.Join(names, ", "))
	}
	return nil
}

// answer is what a request got: status is its code with words, and said the beginning of its body.
type answer struct {
	code         int
	status, said string
	header       http.Header
}

// call makes a request. Its context bounds it.
func call(
	ctx context.Context, method, address string, header map[string]string, body []byte,
) (answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, address, bytes.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	for name, value := range header {
		request.Header.Set(name, value)
	}
	got, err := new(http.Client).Do(request)
	if err != nil {
		return answer{}, err
	}
	defer got.Body.Close()
	said, err := io.ReadAll(io.LimitReader(got.Body, 500))
	return answer{got.StatusCode, got.Status, string(said), got.Header}, err
}
