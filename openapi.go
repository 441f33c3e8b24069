package tidemark

import _ "embed" // for OpenAPI

// OpenAPI is openapi.yaml: the contract of the REST interface, and the schemas of all events and frames. It must not be changed.
//
//go:embed openapi.yaml
var OpenAPI []byte
