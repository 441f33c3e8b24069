package test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// layers are the packages of the core, the lowest first. Each imports only packages before it
// (ARCHITECTURE.md, Layers).
var layers = []string{
	"server/internal/pagetoken", "server/internal/watermark", "server/internal/retry",
	"server/internal/ackbuffer", "server/internal/chat", "server/internal/session",
	"server/internal/leases", "server/internal/delivery", "server/internal/receipts",
	"server/internal/sessions", "server",
}

// TestShape_layers_of_the_core_call_down_only: a package that is in no layer, or imports a higher
// one, would let calls run upward.
func TestShape_layers_of_the_core_call_down_only(t *testing.T) {
	seen := 0
	for _, pkg := range packages(t) {
		path := pkg.path()
		if path != "server" && !within("server/internal/...", path) {
			continue
		}
		at := slices.Index(layers, path)
		if at < 0 {
			t.Errorf("%s is in no layer of test/shape_test.go", path)
			continue
		}
		seen++
		for _, imported := range pkg.Imports {
			of := strings.TrimPrefix(imported, module+"/")
			if below := slices.Index(layers, of); below >= at {
				t.Errorf("%s imports %s, which is not below it", path, of)
			}
		}
	}
	if seen != len(layers) {
		t.Errorf("%d layers were found, want %d", seen, len(layers))
	}
}

// callbacks are the functions that are passed down into the core. The text is the reason why the
// result cannot go back as a value.
var callbacks = map[string]string{
	"server/config.go:Config.Clock":                   "the clock of tests",
	"server/internal/session/host.go:Host.Now":        "the same clock",
	"server/internal/receipts/receipts.go:Config.Now": "the same clock",
	"server/internal/sessions/open.go:ResumeRequest.Yield": "whether the client has closed " +
		"its side is asked at the moment that counts",
	"server/internal/session/session.go:Raised.may": "asked under the session's lock, " +
		"after those who remove members have said so",
}

// TestShape_few_callbacks counts fields and parameters of a function type in the exported API of
// the core's packages.
func TestShape_few_callbacks(t *testing.T) {
	found := make(map[string]bool)
	for path, file := range coreFiles(t) {
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() {
					for name := range functionFields(d.Type.Params, "parameters") {
						found[path+":"+d.Name.Name+"."+name] = true
					}
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					s, ok := spec.(*ast.TypeSpec)
					if !ok || !s.Name.IsExported() {
						continue
					}
					if st, ok := s.Type.(*ast.StructType); ok {
						for name := range functionFields(st.Fields, "fields") {
							found[path+":"+s.Name.Name+"."+name] = true
						}
					}
				}
			}
		}
	}
	for name := range found {
		if callbacks[name] == "" {
			t.Errorf("%s is a callback without a reason in test/shape_test.go", name)
		}
	}
	for name := range callbacks {
		if !found[name] {
			t.Errorf("there is no callback %s", name)
		}
	}
}

// functionFields returns the names in a list whose type is a function: all parameters, exported
// fields.
func functionFields(list *ast.FieldList, of string) map[string]bool {
	names := make(map[string]bool)
	if list == nil {
		return names
	}
	for _, f := range list.List {
		if _, ok := f.Type.(*ast.FuncType); !ok {
			continue
		}
		for _, n := range f.Names {
			if of == "parameters" || n.IsExported() {
				names[n.Name] = true
			}
		}
	}
	return names
}

// TestShape_session_is_values_and_not_flags: a session is its identity, one lock, and eight values.
func TestShape_session_is_values_and_not_flags(t *testing.T) {
	const mostFields = 13
	for path, file := range coreFiles(t) {
		if path != "server/internal/session/session.go" {
			continue
		}
		for name, st := range structs(file) {
			if name != "Session" {
				continue
			}
			fields := 0
			for _, f := range st.Fields.List {
				fields += max(len(f.Names), 1)
				if id, ok := f.Type.(*ast.Ident); ok && id.Name == "bool" {
					t.Errorf("Session.%v is a bool", f.Names)
				}
			}
			if fields == 0 || fields > mostFields {
				t.Errorf("Session has %d fields, at most %d are allowed", fields, mostFields)
			}
			return
		}
	}
	t.Error("there is no struct Session")
}

// Bounds of exported names and of fields, and what exceeds them, with the reason.
const (
	maxExported = 25
	maxFields   = 15
)

var (
	manyExported = map[string]string{
		".":                        "the vocabulary of the product: ids, limits, errors, events",
		"server":                   "a request and an answer for each call of the core",
		"transports/limit":         "each limit has its options",
		"transports/internal/wire": "one decoder or encoder for each body and frame",
		"server/internal/session":  "the session, its reader, and what they take and give",
		"bench/internal/client":    "one call for each request of the API",
		"test/faults/dynamo":       "one name for each fault",
		"test/chaos/checker":       "one name for each thing that a log records",
	}
	manyFields = map[string]string{
		"server/config.go:Config":                      "one for each setting of the core",
		"transports/transports.go:Config":              "one for each part and setting of HTTP",
		"server/internal/session/snapshot.go:Snapshot": "a session in writing: all eight values",
		"transports/websocket/connection.go:connection": "a socket, its session and both " +
			"directions",
		"bench/listener.go:listener":         "what a listener counts",
		"bench/report.go:Report":             "one for each figure of the report",
		"bench/run.go:run":                   "what a run measures",
		"bench/storm.go:Storm":               "one for each figure of the report",
		"bench/survivor.go:survivor":         "what a client checks while its server is away",
		"test/chaos/checker/log.go:Log":      "one for each kind of entry",
		"test/chaos/client/device.go:Device": "a device with all its transports",
	}
)

// TestShape_few_names_and_few_fields: whatever exceeds a bound has a reason here.
func TestShape_few_names_and_few_fields(t *testing.T) {
	exported, fields := make(map[string]map[string]bool), make(map[string]int)
	for path, source := range goFiles(t) {
		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		path = strings.TrimPrefix(path, "../")
		dir := filepath.Dir(path)
		if exported[dir] == nil {
			exported[dir] = make(map[string]bool)
		}
		for _, name := range declared(file) {
			if ast.IsExported(name) {
				exported[dir][name] = true
			}
		}
		for name, st := range structs(file) {
			for _, f := range st.Fields.List {
				fields[path+":"+name] += max(len(f.Names), 1)
			}
		}
	}
	for dir, names := range exported {
		if many := len(names) > maxExported; many != (manyExported[dir] != "") {
			t.Errorf("%s has %d exported names; above %d need a reason in test/shape_test.go",
				dir, len(names), maxExported)
		}
	}
	for name, n := range fields {
		if many := n > maxFields; many != (manyFields[name] != "") {
			t.Errorf("%s has %d fields; above %d need a reason in test/shape_test.go",
				name, n, maxFields)
		}
	}
}

// coreFiles returns the product files of the core, by path.
func coreFiles(t *testing.T) map[string]*ast.File {
	t.Helper()
	files := make(map[string]*ast.File)
	err := filepath.WalkDir("../server", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() &&
			(strings.HasSuffix(path, "test") || path == "../server/bus" ||
				path == "../server/registry"):
			return fs.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, ".go") ||
			strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		files[strings.TrimPrefix(path, "../")] = file
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// declared returns the names of a file's functions, types, constants and variables.
func declared(file *ast.File) (names []string) {
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil {
				names = append(names, d.Name.Name)
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				switch s := spec.(type) {
				case *ast.TypeSpec:
					names = append(names, s.Name.Name)
				case *ast.ValueSpec:
					for _, n := range s.Names {
						names = append(names, n.Name)
					}
				}
			}
		}
	}
	return names
}

// structs returns the struct types of a file, by name.
func structs(file *ast.File) map[string]*ast.StructType {
	all := make(map[string]*ast.StructType)
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.TypeSpec); ok {
			if st, ok := s.Type.(*ast.StructType); ok {
				all[s.Name.Name] = st
			}
		}
		return true
	})
	return all
}
