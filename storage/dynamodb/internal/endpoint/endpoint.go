// Package endpoint parses the URL of a store in DynamoDB, and makes the client for its calls.
package endpoint

import (
	"errors"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/tidemark-im/tidemark"
)

// defaultPrefix is the prefix of the tables' names if the URL has none.
const defaultPrefix = "tidemark-"

// maxPrefix is the maximum length of a prefix. A name has up to 255 characters (DynamoDB, Naming
// rules), and the longest name of a table without prefix has 18.
const maxPrefix = 200

// The parameters of a URL.
const (
	parameterEndpoint = "endpoint"
	parameterRecovery = "point_in_time_recovery"
	parameterGuard    = "deletion_protection"
	parameterKey      = "kms_key"
)

// The shapes of the parts of a URL. A Region is not looked up in a list, because AWS adds new ones.
const (
	regionShape = `^[a-z0-9]+(-[a-z0-9]+)*$`
	prefixShape = `^[A-Za-z0-9_.-]*$`
	keyShape    = `^arn:[a-z-]+:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+$`
)

// An Endpoint is a parsed URL.
type Endpoint struct {
	Region string
	// Prefix begins the name of every table.
	Prefix string
	// Endpoint is the address of a DynamoDB outside AWS, "" for the Region's own.
	Endpoint string
	// PointInTimeRecovery and DeletionProtection say what a migration turns on. Key is the ARN of
	// the KMS key that encrypts the tables, "" for DynamoDB's own key.
	PointInTimeRecovery, DeletionProtection bool
	Key                                     string
	// Name is the part of the URL that may be shown.
	Name string
}

// Parse parses the URL. Errors: Invalid. No error repeats the URL, since it may contain a secret.
func Parse(raw string) (*Endpoint, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Scheme != "dynamodb" || u.Opaque != "" || u.Fragment != "":
		return nil, tidemark.Errorf(tidemark.Invalid,
			"the URL of DynamoDB cannot be read; it has the form dynamodb://REGION/PREFIX, such "+
				"as dynamodb://eu-central-1/tidemark-")
	case u.User != nil:
		return nil, tidemark.Errorf(tidemark.Invalid,
			"the URL of DynamoDB holds no credentials; give them in the environment "+
				"(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), in a profile, or as the role of the "+
				"machine")
	case !matches(regionShape, u.Host):
		return nil, tidemark.Errorf(tidemark.Invalid,
			"the URL of DynamoDB begins with a Region, such as dynamodb://eu-central-1/tidemark-; "+
				"give an address as ?endpoint=http://HOST:PORT")
	}
	t := &Endpoint{Region: u.Host, Prefix: strings.TrimPrefix(u.Path, "/")}
	if !matches(prefixShape, t.Prefix) || len(t.Prefix) > maxPrefix {
		return nil, tidemark.Errorf(tidemark.Invalid,
			"the prefix in the URL of DynamoDB has at most %d characters of A-Z a-z 0-9 _ . -, "+
				"and no second slash", maxPrefix)
	}
	if t.Prefix == "" {
		t.Prefix = defaultPrefix
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, tidemark.Errorf(tidemark.Invalid,
			"the parameters in the URL of DynamoDB cannot be read; they follow one ?, are "+
				"separated by &, and special characters are written as %%XX")
	}
	if err := t.configure(query); err != nil {
		return nil, err
	}
	t.Name = "dynamodb://" + t.Region + "/" + t.Prefix
	if t.Endpoint != "" {
		t.Name += "?endpoint=" + t.Endpoint
	}
	return t, nil
}

// configure reads the parameters. The protection of the tables is on by default at AWS, and off
// elsewhere. Emulators do not have it, and their data is for trials.
func (t *Endpoint) configure(query url.Values) error {
	known := []string{parameterEndpoint, parameterRecovery, parameterGuard, parameterKey}
	for name, values := range query {
		switch {
		case !slices.Contains(known, name):
			return tidemark.Errorf(tidemark.Invalid,
				"the URL of DynamoDB has an unknown parameter; known are: %s",
				strings.Join(known, ", "))
		case len(values) > 1:
			return tidemark.Errorf(tidemark.Invalid, "%s is twice in the URL of DynamoDB", name)
		}
	}
	if query.Has(parameterEndpoint) {
		e, err := url.Parse(query.Get(parameterEndpoint))
		if err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Hostname() == "" ||
			e.User != nil || strings.Trim(e.Path, "/") != "" || e.RawQuery != "" ||
			e.Fragment != "" {
			return tidemark.Errorf(tidemark.Invalid,
				"endpoint in the URL of DynamoDB has the form http://HOST:PORT or "+
					"https://HOST:PORT, without anything behind it")
		}
		t.Endpoint = e.Scheme + "://" + e.Host
	}
	for _, protection := range []struct {
		parameter string
		on        *bool
	}{{parameterRecovery, &t.PointInTimeRecovery}, {parameterGuard, &t.DeletionProtection}} {
		*protection.on = t.aws()
		if !query.Has(protection.parameter) {
			continue
		}
		switch query.Get(protection.parameter) {
		case "on":
			*protection.on = true
		case "off":
			*protection.on = false
		default:
			return tidemark.Errorf(tidemark.Invalid, "%s in the URL of DynamoDB is on or off",
				protection.parameter)
		}
	}
	t.Key = query.Get(parameterKey)
	if query.Has(parameterKey) && !matches(keyShape, t.Key) {
		return tidemark.Errorf(tidemark.Invalid,
			"kms_key in the URL of DynamoDB is the ARN of a key, such as "+
				"arn:aws:kms:eu-central-1:111122223333:key/1234abcd-12ab-34cd-56ef-1234567890ab; "+
				"an alias is not enough, since it may move")
	}
	return nil
}

// aws reports whether the endpoint is at AWS: that of the Region, or one of a private network
// (PrivateLink).
func (t *Endpoint) aws() bool {
	if t.Endpoint == "" {
		return true
	}
	e, err := url.Parse(t.Endpoint)
	return err == nil &&
		slices.ContainsFunc([]string{".amazonaws.com", ".amazonaws.com.cn", ".api.aws"},
			func(of string) bool { return strings.HasSuffix(e.Hostname(), of) })
}

// Table returns the full name of a table.
func (t *Endpoint) Table(name string) string { return t.Prefix + name }

// Named returns the error with the tables' name before its detail.
func (t *Endpoint) Named(err error) error {
	if err == nil {
		return nil
	}
	cause := err
	var e *tidemark.Error
	if errors.As(err, &e) {
		cause = e.Err // What e says is in the detail.
	}
	return &tidemark.Error{
		Code:   tidemark.CodeOf(err),
		Detail: t.Name + ": " + tidemark.DetailOf(err),
		Err:    cause,
	}
}

func matches(shape, text string) bool { return regexp.MustCompile(shape).MatchString(text) }
