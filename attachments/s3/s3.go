// Package s3 keeps files in a bucket of S3, or of a service that speaks its protocol. Clients
// upload and download there, by presigned URLs: no byte of a file passes through this server.
//
// Length, type and checksum of an upload are signed headers, and S3 compares the body with them. A
// checksum in the query would not do: S3 ignores it there. `If-None-Match: *` lets the first upload
// win, so that the bytes of a file never change.
package s3

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/attachments"
)

var _ attachments.Bytes = (*S3)(nil)

// callWithin bounds one call of the bucket, with its repetitions.
const callWithin = 10 * time.Second

// S3 is a bucket. It is safe for concurrent use.
type S3 struct {
	at     Location
	client *s3.Client
	sign   *s3.PresignClient
	origin string
	now    func() time.Time
}

// New returns a bucket. It finds credentials as every program of AWS does: in the environment, in a
// profile, or as the role of the machine. At an endpoint outside AWS it does not ask the machine.
//
// Errors: Unavailable, if there are no credentials.
func New(ctx context.Context, at Location) (*S3, error) {
	options := []func(*config.LoadOptions) error{config.WithRegion(at.Region)}
	if at.Endpoint != "" && !strings.HasSuffix(at.Endpoint, ".amazonaws.com") {
		options = append(options, config.WithEC2IMDSClientEnableState(imds.ClientDisabled))
	}
	found, err := config.LoadDefaultConfig(ctx, options...)
	if err == nil {
		_, err = found.Credentials.Retrieve(ctx)
	}
	if err != nil {
		return nil, tidemark.Wrap(tidemark.Unavailable, err,
			"there are no credentials for S3; give the machine or the task a role, or set "+
				"AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	}
	client := s3.NewFromConfig(found, func(o *s3.Options) {
		o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
		o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
		if at.Endpoint != "" {
			o.BaseEndpoint, o.UsePathStyle = aws.String(at.Endpoint), true
		}
	})
	signer := v4.NewSigner(func(o *v4.SignerOptions) {
		o.DisableURIPathEscaping = true // S3 signs the path as it is.
		// Versions of the SDK differ in what they move to the query.
		o.DisableHeaderHoisting = true
	})
	sign := s3.NewPresignClient(client, func(o *s3.PresignOptions) { o.Presigner = signer })
	example, err := sign.PresignHeadBucket(ctx, &s3.HeadBucketInput{Bucket: &at.Bucket})
	if err != nil {
		return nil, unavailable(err)
	}
	address, err := url.Parse(example.URL)
	if err != nil {
		return nil, unavailable(err)
	}
	origin := address.Scheme + "://" + address.Host
	return &S3{at: at, client: client, sign: sign, origin: origin, now: time.Now}, nil
}

// Origin returns the origin of all URLs of the bucket, such as
// https://files.s3.eu-central-1.amazonaws.com.
func (b *S3) Origin() string { return b.origin }

func (b *S3) key(id string) *string { return aws.String(b.at.Prefix + id) }

func checksum(f *attachments.File) string { return base64.StdEncoding.EncodeToString(f.Sum[:]) }

// SignUpload implements attachments.Bytes.
func (b *S3) SignUpload(
	ctx context.Context, _ tidemark.UserID, f *attachments.File, until time.Time,
) (attachments.Request, error) {
	signed, err := b.sign.PresignPutObject(ctx, &s3.PutObjectInput{
		Bucket: &b.at.Bucket, Key: b.key(f.ID),
		ContentLength: aws.Int64(f.Size),
		ContentType:   aws.String(f.Type),
		//rule:no_file_outside_membership.sign-the-checksum
		ChecksumSHA256: aws.String(checksum(f)),
		IfNoneMatch:    aws.String("*"),
	}, s3.WithPresignExpires(b.rest(until)))
	if err != nil {
		return attachments.Request{}, unavailable(err)
	}
	header := make(map[string]string)
	for name, values := range signed.SignedHeader {
		// An HTTP client sets these two itself. Pages cannot.
		if name = http.CanonicalHeaderKey(name); name != "Host" && name != "Content-Length" {
			header[name] = strings.Join(values, ",")
		}
	}
	return attachments.Request{Method: signed.Method, URL: signed.URL, Header: header}, nil
}

// SignDownload implements attachments.Bytes.
func (b *S3) SignDownload(
	ctx context.Context, _ tidemark.UserID, f *attachments.File, disposition string,
	until time.Time,
) (string, error) {
	signed, err := b.sign.PresignGetObject(ctx, &s3.GetObjectInput{
		Bucket: &b.at.Bucket, Key: b.key(f.ID),
		ResponseContentDisposition: aws.String(disposition),
		ResponseContentType:        aws.String(f.Type),
		ResponseCacheControl:       aws.String("private, no-store"),
	}, s3.WithPresignExpires(b.rest(until)))
	if err != nil {
		return "", unavailable(err)
	}
	return signed.URL, nil
}

// rest returns how long a URL lasts that is valid until a time.
func (b *S3) rest(until time.Time) time.Duration {
	return max(time.Second, until.Sub(b.now()).Round(time.Second))
}

// Stored implements attachments.Bytes. S3 has compared the bytes with the hash when it stored them.
// If it has kept the hash, Stored compares that too.
func (b *S3) Stored(ctx context.Context, f *attachments.File) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	head, err := b.client.HeadObject(ctx, &s3.HeadObjectInput{
		Bucket: &b.at.Bucket, Key: b.key(f.ID), ChecksumMode: types.ChecksumModeEnabled,
	})
	var answer *awshttp.ResponseError
	switch {
	case errors.As(err, &answer) && answer.HTTPStatusCode() == http.StatusNotFound:
		return false, nil
	case err != nil:
		return false, unavailable(err)
	}
	sum := aws.ToString(head.ChecksumSHA256)
	return aws.ToInt64(head.ContentLength) == f.Size && (sum == "" || sum == checksum(f)), nil
}

// Remove implements attachments.Bytes.
func (b *S3) Remove(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, callWithin)
	defer cancel()
	_, err := b.client.DeleteObject(ctx, &s3.DeleteObjectInput{
		Bucket: &b.at.Bucket, Key: b.key(id),
	})
	if err != nil {
		return unavailable(err)
	}
	return nil
}

func unavailable(err error) error {
	return tidemark.Wrap(tidemark.Unavailable, err,
		"the bucket of files did not answer as it should; try again later")
}
