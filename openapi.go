package tidemark

import _ "embed" // for OpenAPI

// OpenAPI is the text of openapi.yaml: the contract of the REST API, and the schemas of all events
// and frames. It must not be changed.
//
//go:embed openapi.yaml
var OpenAPI []byte
