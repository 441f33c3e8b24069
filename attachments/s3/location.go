package s3

import (
	"net/url"
	"regexp"
	"strings"

	"github.com/tidemark-im/tidemark"
)

// The shapes of the parts of a URL (S3, Bucket naming rules). A list of Regions would be out of
// date.
var (
	regionShape = regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`)
	bucketShape = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$`)
	prefixShape = regexp.MustCompile(`^[A-Za-z0-9_./-]{0,200}$`)
)

// Location says where files are.
type Location struct {
	Region, Bucket string
	// Prefix begins the key of each file.
	Prefix string
	// Endpoint is the address of an S3 outside AWS, "" for that of the Region. Its bucket is in the
	// path of URLs, and not in the name of the host.
	Endpoint string
}

// Parse parses s3://REGION/BUCKET/PREFIX?endpoint=https://HOST:PORT. Errors: Invalid. No error
// repeats the URL, since it may contain a secret.
func Parse(raw string) (Location, error) {
	u, err := url.Parse(raw)
	switch {
	case err != nil || u.Scheme != "s3" || u.Opaque != "" || u.Fragment != "":
		return Location{}, tidemark.Errorf(tidemark.Invalid,
			"the URL of S3 cannot be read; it has the form s3://REGION/BUCKET/PREFIX, such as "+
				"s3://eu-central-1/example-files")
	case u.User != nil:
		return Location{}, tidemark.Errorf(tidemark.Invalid,
			"the URL of S3 holds no credentials; give them in the environment "+
				"(AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY), in a profile, or as the role of the "+
				"machine")
	}
	bucket, prefix, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	l := Location{Region: u.Host, Bucket: bucket, Prefix: prefix}
	switch {
	case !regionShape.MatchString(l.Region):
		return Location{}, tidemark.Errorf(tidemark.Invalid,
			"the URL of S3 begins with a Region, such as s3://eu-central-1/example-files; give an "+
				"address as ?endpoint=https://HOST:PORT")
	case !bucketShape.MatchString(bucket):
		return Location{}, tidemark.Errorf(tidemark.Invalid,
			"the URL of S3 names a bucket after the Region, with 3 to 63 characters of a-z 0-9 . -")
	case !prefixShape.MatchString(prefix) || strings.Contains("/"+prefix+"/", "/../"):
		return Location{}, tidemark.Errorf(tidemark.Invalid,
			"the prefix in the URL of S3 has at most 200 characters of A-Z a-z 0-9 _ . - /")
	}
	if prefix != "" && !strings.HasSuffix(prefix, "/") {
		l.Prefix += "/"
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil || len(query) > 1 || len(query) == 1 && len(query["endpoint"]) != 1 {
		return Location{}, tidemark.Errorf(tidemark.Invalid,
			"the URL of S3 has no other parameter than one endpoint")
	}
	if query.Has("endpoint") {
		l.Endpoint, err = endpoint(query.Get("endpoint"))
	}
	return l, err
}

func endpoint(raw string) (string, error) {
	e, err := url.Parse(raw)
	if err != nil || e.Scheme != "http" && e.Scheme != "https" || e.Hostname() == "" ||
		e.User != nil || strings.Trim(e.Path, "/") != "" || e.RawQuery != "" || e.Fragment != "" {
		return "", tidemark.Errorf(tidemark.Invalid, "endpoint in the URL of S3 has the form "+
			"https://HOST:PORT, without anything behind it")
	}
	return e.Scheme + "://" + e.Host, nil
}
