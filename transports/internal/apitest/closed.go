package apitest

import "github.com/getkin/kin-openapi/openapi3"

// closeAll gives every object of the document `additionalProperties: false`, unless it sets that
// itself, and closes the open enums. So a field or value that the contract does not name is an
// error.
func closeAll(doc *openapi3.T) {
	done := make(map[*openapi3.Schema]bool)
	for _, schema := range doc.Components.Schemas {
		closeSchema(schema, done)
	}
	for _, response := range doc.Components.Responses {
		closeContent(response.Value.Content, done)
	}
	for _, item := range doc.Paths.Map() {
		for _, operation := range item.Operations() {
			for _, response := range operation.Responses.Map() {
				closeContent(response.Value.Content, done)
			}
		}
	}
}

func closeContent(content openapi3.Content, done map[*openapi3.Schema]bool) {
	for _, media := range content {
		closeSchema(media.Schema, done)
	}
}

func closeSchema(ref *openapi3.SchemaRef, done map[*openapi3.Schema]bool) {
	if ref == nil || done[ref.Value] {
		return
	}
	s := ref.Value
	done[s] = true
	merge(s)
	s.Enum = append(s.Enum, openEnum(s)...)
	if s.Type.Is("object") && s.AdditionalProperties.Has == nil &&
		s.AdditionalProperties.Schema == nil {
		closed := false
		s.AdditionalProperties.Has = &closed
	}
	closeSchema(s.Items, done)
	for _, property := range s.Properties {
		closeSchema(property, done)
	}
	for _, list := range []openapi3.SchemaRefs{s.OneOf, s.AnyOf, s.AllOf} {
		for _, part := range list {
			closeSchema(part, done)
		}
	}
}

// merge replaces an allOf of several parts by one object. If the parts were closed, none would
// allow the fields of the others.
func merge(s *openapi3.Schema) {
	if len(s.AllOf) < 2 {
		return
	}
	s.Type, s.Properties = &openapi3.Types{"object"}, openapi3.Schemas{}
	for _, part := range s.AllOf {
		s.Required = append(s.Required, part.Value.Required...)
		for name, property := range part.Value.Properties {
			s.Properties[name] = property
		}
	}
	s.AllOf = nil
}
