package endpoint

import (
	"context"
	"net"
	"net/http"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/tidemark-im/tidemark"
)

const (
	// connectTime bounds making a connection, and its handshake.
	connectTime = 3 * time.Second
	// keepAlive is the idle time after which the kernel checks that the peer still answers.
	keepAlive = 15 * time.Second
	// idleConnections is how many idle connections are kept. The SDK's default is 10. Each
	// concurrent call beyond it would need a new handshake.
	idleConnections = 256
)

// Client returns a client that makes each call once, because only the caller knows what may be
// repeated. It finds credentials as every program of AWS does: in the environment, in a profile, or
// as the role of the machine. At an endpoint that is not AWS it does not ask the machine. If there
// are no credentials there, it uses invented ones. transport carries the calls to DynamoDB; nil is
// the default.
//
// Errors: Unavailable, if there are no credentials or the configuration of the SDK cannot be read.
func (t *Endpoint) Client(
	ctx context.Context, transport http.RoundTripper,
) (*dynamodb.Client, error) {
	options := []func(*config.LoadOptions) error{config.WithRegion(t.Region)}
	if !t.aws() {
		options = append(options, config.WithEC2IMDSClientEnableState(imds.ClientDisabled))
	}
	found, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, tidemark.Wrap(tidemark.Unavailable, err,
			"the configuration of the AWS SDK cannot be read; look at AWS_PROFILE, "+
				"AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE")
	}
	switch _, err := found.Credentials.Retrieve(ctx); {
	case err == nil:
	case ctx.Err() != nil:
		return nil, tidemark.Wrap(tidemark.Unavailable, err,
			"the credentials for AWS did not come in time")
	case t.aws():
		return nil, tidemark.Wrap(tidemark.Unavailable, err,
			"there are no credentials for AWS; give the machine or the task a role, or set "+
				"AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY")
	default:
		found.Credentials = credentials.NewStaticCredentialsProvider("tidemark", "tidemark", "")
	}
	return dynamodb.NewFromConfig(found, func(o *dynamodb.Options) {
		o.Retryer = aws.NopRetryer{}
		o.HTTPClient = whole{carrier(transport)}
		o.DisableValidateResponseChecksum = true // whole validates it.
		if t.Endpoint != "" {
			o.BaseEndpoint = aws.String(t.Endpoint)
		}
	}), nil
}

// Release closes the connections of a client that makes no more calls.
func Release(client *dynamodb.Client) {
	if c, ours := client.Options().HTTPClient.(whole); ours {
		c.CloseIdleConnections()
	}
}

// carrier returns an HTTP client that follows no redirection, since DynamoDB never sends one.
func carrier(transport http.RoundTripper) *http.Client {
	if transport == nil {
		transport = awshttp.NewBuildableClient().
			WithDialerOptions(func(d *net.Dialer) {
				d.Timeout, d.KeepAlive = connectTime, keepAlive
			}).
			WithTransportOptions(func(t *http.Transport) {
				t.TLSHandshakeTimeout = connectTime
				t.MaxIdleConns, t.MaxIdleConnsPerHost = idleConnections, idleConnections
			}).GetTransport()
	}
	return &http.Client{
		Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}
}
