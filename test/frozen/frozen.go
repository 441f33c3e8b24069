// Package frozen compares two versions of openapi.yaml. It finds what would break a client that was
// written for the first one. Additions break no client.
package frozen

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// Breaks returns what breaks clients of the old contract, in order.
//
// A client sends requests and frames, so these must stay accepted. It reads answers, events and
// other frames, so these must stay as they are or have more in them. An unknown event, field or
// value of an open enum is an addition: clients ignore it.
func Breaks(old, now *openapi3.T) []string {
	c := &comparison{done: map[pair]bool{}}
	was, is := operations(old), operations(now)
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if found, there := is[name]; there {
			c.operation(name, was[name], found)
		} else {
			c.breaks("%s is gone", name)
		}
	}
	c.security(old.Components.SecuritySchemes, now.Components.SecuritySchemes)
	// No operation refers to the schemas of frames and events.
	for name, way := range map[string]direction{
		"Event": answer, "ReplyFrame": answer, "ClientFrame": request,
	} {
		c.schema(name, old.Components.Schemas[name], now.Components.Schemas[name], way)
	}
	slices.Sort(c.found)
	return slices.Compact(c.found)
}

// operation is an operation with the parameters of its path and the security of the document.
type operation struct {
	*openapi3.Operation
	parameters map[string]*openapi3.Parameter
	security   openapi3.SecurityRequirements
}

// operations returns the operations by method and path on the server.
func operations(doc *openapi3.T) map[string]operation {
	all := map[string]operation{}
	for path, item := range doc.Paths.Map() {
		base := doc.Servers
		if len(item.Servers) > 0 {
			base = item.Servers
		}
		for method, found := range item.Operations() {
			o := operation{
				Operation: found, parameters: map[string]*openapi3.Parameter{},
				security: doc.Security,
			}
			if found.Security != nil {
				o.security = *found.Security
			}
			for _, p := range append(slices.Clone(item.Parameters), found.Parameters...) {
				o.parameters[p.Value.In+" parameter "+p.Value.Name] = p.Value
			}
			all[method+" "+strings.TrimSuffix(base[0].URL, "/")+path] = o
		}
	}
	return all
}

// direction says who sends a value.
type direction int

const (
	request direction = iota
	answer
)

// pair names a comparison of two schemas that has begun.
type pair struct {
	old, now *openapi3.Schema
	way      direction
}

// A comparison collects what breaks clients.
type comparison struct {
	done  map[pair]bool
	found []string
}

func (c *comparison) breaks(format string, args ...any) {
	c.found = append(c.found, fmt.Sprintf(format, args...))
}

func (c *comparison) operation(what string, old, now operation) {
	if old.OperationID != now.OperationID {
		c.breaks("%s: the operationId was %s and is %s; generated clients name their calls by it",
			what, old.OperationID, now.OperationID)
	}
	if was, is := old.Extensions["x-retry"], now.Extensions["x-retry"]; was != is {
		c.breaks("%s: x-retry was %v and is %v", what, was, is)
	}
	if was, is := old.Extensions["x-user"], now.Extensions["x-user"]; was != nil && was != is {
		c.breaks("%s: x-user was %v and is %v", what, was, is)
	}
	if len(old.security) == 0 && len(now.security) > 0 {
		c.breaks("%s: credentials are needed", what)
	}
	for name, p := range old.parameters {
		c.parameter(what+": the "+name, p, now.parameters[name])
	}
	for name, p := range now.parameters {
		if old.parameters[name] == nil && p.Required {
			c.breaks("%s: the %s is new and required", what, name)
		}
	}
	for _, way := range old.security {
		if !slices.ContainsFunc(now.security, func(other openapi3.SecurityRequirement) bool {
			return slices.Equal(slices.Sorted(maps.Keys(way)), slices.Sorted(maps.Keys(other)))
		}) {
			c.breaks("%s: credentials %v are accepted no more", what,
				slices.Sorted(maps.Keys(way)))
		}
	}
	c.body(what, old.RequestBody, now.RequestBody)
	for status, response := range old.Responses.Map() {
		if found := now.Responses.Value(status); found != nil {
			c.response(what+" "+status, response.Value, found.Value)
		} else {
			c.breaks("%s: the status %s is gone", what, status)
		}
	}
}

func (c *comparison) parameter(what string, old, now *openapi3.Parameter) {
	switch {
	case now == nil:
		c.breaks("%s is gone", what)
		return
	case now.Required && !old.Required:
		c.breaks("%s became required", what)
	}
	c.schema(what, old.Schema, now.Schema, request)
}

func (c *comparison) body(what string, old, now *openapi3.RequestBodyRef) {
	switch {
	case old == nil && now != nil && now.Value.Required:
		c.breaks("%s: a body became required", what)
	case old != nil && now == nil:
		c.breaks("%s: the body is gone", what)
	case old != nil:
		if now.Value.Required && !old.Value.Required {
			c.breaks("%s: the body became required", what)
		}
		c.content(what, old.Value.Content, now.Value.Content, request)
	}
}

func (c *comparison) content(what string, old, now openapi3.Content, way direction) {
	for media, was := range old {
		if is := now[media]; is != nil {
			c.schema(what, was.Schema, is.Schema, way)
		} else {
			c.breaks("%s: the media type %s is gone", what, media)
		}
	}
}

func (c *comparison) response(what string, old, now *openapi3.Response) {
	for name, header := range old.Headers {
		found := now.Headers[name]
		switch {
		case found == nil:
			c.breaks("%s: the header %s is gone", what, name)
			continue
		case header.Value.Required && !found.Value.Required:
			c.breaks("%s: the header %s may be absent", what, http.CanonicalHeaderKey(name))
		}
		c.schema(what+": the header "+name, header.Value.Schema, found.Value.Schema, answer)
	}
	c.content(what, old.Content, now.Content, answer)
}

// security compares how credentials are sent.
func (c *comparison) security(old, now openapi3.SecuritySchemes) {
	for name, scheme := range old {
		found := now[name]
		if found == nil {
			c.breaks("the credentials %s are gone", name)
			continue
		}
		was, is := scheme.Value, found.Value
		if was.Type != is.Type || was.In != is.In || was.Name != is.Name ||
			was.Scheme != is.Scheme {
			c.breaks("the credentials %s are sent in another way", name)
		}
	}
}
