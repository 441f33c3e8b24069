package frozen

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"
)

// shape is a schema together with all parts of its allOf.
type shape struct {
	// kind is the type with its format.
	kind, pattern, fallback string
	nullable                bool
	// closed reports that unknown fields are refused.
	closed        bool
	properties    openapi3.Schemas
	required      []string
	enum, open    []any
	items         *openapi3.SchemaRef
	oneOf, anyOf  openapi3.SchemaRefs
	discriminator *openapi3.Discriminator
	// least has the lower bounds, most the upper bounds, each by its keyword.
	least, most map[string]float64
}

// shapeOf merges a schema with the parts of its allOf. The value may be null if the schema or one
// of the parts is nullable.
func shapeOf(s *openapi3.Schema) shape {
	all := shape{
		properties: openapi3.Schemas{}, least: map[string]float64{}, most: map[string]float64{},
	}
	all.add(s)
	return all
}

func (all *shape) add(s *openapi3.Schema) {
	for _, part := range s.AllOf {
		all.add(part.Value)
	}
	if s.Type != nil {
		all.kind = strings.TrimSpace(fmt.Sprint(s.Type.Slice(), " ", s.Format))
	}
	if s.Pattern != "" {
		all.pattern = s.Pattern
	}
	if s.Default != nil {
		all.fallback = text(s.Default)
	}
	all.nullable = all.nullable || s.Nullable
	all.closed = all.closed || s.AdditionalProperties.Has != nil && !*s.AdditionalProperties.Has
	maps.Copy(all.properties, s.Properties)
	all.required = append(all.required, s.Required...)
	all.enum = append(all.enum, s.Enum...)
	open, _ := s.Extensions["x-extensible-enum"].([]any)
	all.open = append(all.open, open...)
	if s.Items != nil {
		all.items = s.Items
	}
	all.oneOf, all.anyOf = append(all.oneOf, s.OneOf...), append(all.anyOf, s.AnyOf...)
	if s.Discriminator != nil {
		all.discriminator = s.Discriminator
	}
	all.bounds(s)
}

func (all *shape) bounds(s *openapi3.Schema) {
	if s.Min != nil {
		all.least["minimum"] = *s.Min
	}
	if s.Max != nil {
		all.most["maximum"] = *s.Max
	}
	for name, n := range map[string]uint64{"minLength": s.MinLength, "minItems": s.MinItems} {
		if n > 0 {
			all.least[name] = float64(n)
		}
	}
	for name, n := range map[string]*uint64{"maxLength": s.MaxLength, "maxItems": s.MaxItems} {
		if n != nil {
			all.most[name] = float64(*n)
		}
	}
}

// schema compares two schemas of the value that what names.
func (c *comparison) schema(what string, old, now *openapi3.SchemaRef, way direction) {
	switch {
	case old == nil && now == nil:
		return
	case old == nil || now == nil:
		c.breaks("%s: the schema is gone, or new", what)
		return
	}
	both := pair{old.Value, now.Value, way}
	if c.done[both] {
		return
	}
	c.done[both] = true
	was, is := shapeOf(old.Value), shapeOf(now.Value)
	if was.kind != is.kind {
		c.breaks("%s: the type was %s and is %s", what, was.kind, is.kind)
		return
	}
	switch way {
	case request:
		c.sent(what, was, is)
	case answer:
		c.received(what, was, is)
	}
	for name, field := range was.properties {
		if found := is.properties[name]; found != nil {
			c.schema(what+"."+name, field, found, way)
		} else {
			c.breaks("%s.%s is gone", what, name)
		}
	}
	c.schema(what+"[]", was.items, is.items, way)
	c.variants(what, was, is, way)
}

// sent compares what clients send: all that was accepted must still be accepted.
func (c *comparison) sent(what string, was, is shape) {
	if was.nullable && !is.nullable {
		c.breaks("%s may not be null any more", what)
	}
	for _, name := range is.required {
		if !slices.Contains(was.required, name) {
			c.breaks("%s.%s became required", what, name)
		}
	}
	if lost(is.enum, was.enum) != nil || len(was.enum) == 0 && len(is.enum) > 0 {
		c.breaks("%s: the values were %v and are %v", what, was.enum, is.enum)
	}
	for name, bound := range is.least {
		if before, there := was.least[name]; !there || bound > before {
			c.breaks("%s: the %s was raised to %v", what, name, bound)
		}
	}
	for name, bound := range is.most {
		if before, there := was.most[name]; !there || bound < before {
			c.breaks("%s: the %s was lowered to %v", what, name, bound)
		}
	}
	if is.pattern != "" && is.pattern != was.pattern {
		c.breaks("%s: the pattern was %q and is %q", what, was.pattern, is.pattern)
	}
	if was.fallback != is.fallback {
		c.breaks("%s: the default was %s and is %s", what, was.fallback, is.fallback)
	}
	if is.closed && !was.closed {
		c.breaks("%s: other fields are refused", what)
	}
	if len(is.anyOf) > 0 &&
		(len(was.anyOf) == 0 || lost(alternatives(is), alternatives(was)) != nil) {
		c.breaks("%s: other fields are needed", what)
	}
}

// received compares what clients read: no value may come that could not come before, unless it is
// an addition.
func (c *comparison) received(what string, was, is shape) {
	if is.nullable && !was.nullable {
		c.breaks("%s may be null now", what)
	}
	for _, name := range was.required {
		if !slices.Contains(is.required, name) {
			c.breaks("%s.%s may be absent now", what, name)
		}
	}
	if len(was.enum) > 0 && (lost(is.enum, was.enum) != nil || lost(was.enum, is.enum) != nil) {
		c.breaks("%s: the values were %v and are %v", what, was.enum, is.enum)
	}
	if gone := lost(is.open, was.open); gone != nil {
		c.breaks("%s: the values %v are gone", what, gone)
	}
	for name, bound := range was.least {
		if after, there := is.least[name]; !there || after < bound {
			c.breaks("%s: the %s was %v and is lower", what, name, bound)
		}
	}
	for name, bound := range was.most {
		if after, there := is.most[name]; !there || after > bound {
			c.breaks("%s: the %s was %v and is higher", what, name, bound)
		}
	}
	if was.pattern != is.pattern && was.pattern != "" {
		c.breaks("%s: the pattern was %q and is %q", what, was.pattern, is.pattern)
	}
}

// variants compares the alternatives of a oneOf by the values that name them. A new one is an
// addition: clients ignore events and frames that they do not know.
func (c *comparison) variants(what string, was, is shape, way direction) {
	if was.discriminator == nil {
		c.alternatives(what, was, is, way)
		return
	}
	if is.discriminator == nil ||
		is.discriminator.PropertyName != was.discriminator.PropertyName {
		c.breaks("%s: %s no longer says which one it is", what, was.discriminator.PropertyName)
		return
	}
	old, now := named(was), named(is)
	for value, one := range old {
		if found := now[value]; found != nil {
			c.schema(what+" "+value, one, found, way)
		} else {
			c.breaks("%s: %s is gone", what, value)
		}
	}
}

// named returns the variants by the values that name them.
func named(s shape) map[string]*openapi3.SchemaRef {
	variants := map[string]*openapi3.SchemaRef{}
	for value, to := range s.discriminator.Mapping {
		for _, one := range s.oneOf {
			if one.Ref == to.Ref {
				variants[value] = one
			}
		}
	}
	return variants
}

// alternatives compares alternatives that refer to schemas, as those of an ack frame do. Other
// alternatives only say which fields are needed.
func (c *comparison) alternatives(what string, was, is shape, way direction) {
	for _, one := range append(slices.Clone(was.anyOf), was.oneOf...) {
		if one.Ref == "" {
			continue
		}
		all := append(slices.Clone(is.anyOf), is.oneOf...)
		i := slices.IndexFunc(all, func(o *openapi3.SchemaRef) bool { return o.Ref == one.Ref })
		if i < 0 {
			c.breaks("%s: %s is gone", what, one.Ref)
			continue
		}
		c.schema(what, one, all[i], way)
	}
}

// alternatives returns the texts of the alternatives: references, or which fields are needed.
func alternatives(s shape) []any {
	texts := make([]any, len(s.anyOf))
	for i, one := range s.anyOf {
		texts[i] = text(one)
	}
	return texts
}

// lost returns the values of was that are not in is.
func lost(is, was []any) []any {
	var gone []any
	for _, value := range was {
		if !slices.ContainsFunc(is, func(other any) bool { return text(other) == text(value) }) {
			gone = append(gone, value)
		}
	}
	return gone
}

// text returns a value as JSON.
func text(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(raw)
}
