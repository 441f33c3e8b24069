// Package body reads the bodies of requests.
package body

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
	"github.com/tidemark-im/tidemark/transports/limit"
)

// Read returns the JSON body of a request. alsoText accepts text/plain too, which
// navigator.sendBeacon sends for a string.
func Read(c echo.Context, alsoText bool) ([]byte, error) {
	r := c.Request()
	if err := checkType(r.Header, alsoText); err != nil {
		return nil, err
	}
	if r.ContentLength > wire.MaxBody {
		c.Response().Header().Set("Connection", "close")
		return nil, tooLarge()
	}
	//rule:bounded_input.read-one-byte-too-many
	b, err := io.ReadAll(io.LimitReader(r.Body, wire.MaxBody+1))
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, tidemark.Errorf(tidemark.Invalid,
			"the body came too slowly: all of it must arrive within %v", limit.RequestWithin)
	case err != nil:
		return nil, &tidemark.Error{
			Code:   tidemark.Invalid,
			Detail: "the body could not be read to its end",
			Err:    err,
		}
	//rule:bounded_input.limit-body
	case len(b) > wire.MaxBody:
		// Otherwise net/http would read the rest of the body before it answers.
		c.Response().Header().Set("Connection", "close")
		return nil, tooLarge()
	}
	return b, nil
}

func tooLarge() error {
	return tidemark.Errorf(tidemark.TooLarge, "the body is larger than %d bytes", wire.MaxBody)
}

// checkType refuses a body whose headers do not fit JSON in UTF-8.
func checkType(h http.Header, alsoText bool) error {
	//rule:bounded_input.plain-body-only
	if e := h.Get("Content-Encoding"); e != "" && !strings.EqualFold(e, "identity") {
		return tidemark.Errorf(problem.UnsupportedMediaType, "the body must not be compressed")
	}
	contentType := h.Get("Content-Type")
	if contentType == "" {
		return nil
	}
	media, params, err := mime.ParseMediaType(contentType)
	charset := params["charset"]
	switch {
	case err != nil || media != "application/json" && !(alsoText && media == "text/plain"):
		return tidemark.Errorf(problem.UnsupportedMediaType,
			"the Content-Type must be application/json")
	case charset != "" && !strings.EqualFold(charset, "utf-8"):
		return tidemark.Errorf(problem.UnsupportedMediaType, "the body must be in UTF-8")
	}
	return nil
}
