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

	"github.com/google/go-cmp/cmp"
)

// layers are the packages of the core, the lowest first. Each imports only packages before it
// (ARCHITECTURE.md, Layers).
var layers = []string{
	"server/internal/pagetoken", "server/internal/watermark", "server/internal/least",
	"server/internal/traced", "server/internal/retry",
	"server/internal/ackbuffer", "server/internal/chat", "server/internal/access",
	"server/internal/session",
	"server/internal/leases", "server/internal/survey", "server/internal/presence",
	"server/internal/delivery",
	"server/internal/receipts", "server/internal/sessions", "server",
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

// clock is the reason of callbacks that only tell the time.
const clock = "the clock of tests"

// mostCallbacks is how many callbacks may do more than tell the time.
const mostCallbacks = 3

// callbacks are the functions that are passed down into the core. The text is the reason why the
// result cannot go back as a value.
var callbacks = map[string]string{
	"server/config.go:Config.Clock":                   clock,
	"server/internal/session/host.go:Host.Now":        clock,
	"server/internal/receipts/receipts.go:Config.Now": clock,
	"server/internal/delivery/delivery.go:Config.Now": clock,
	"server/internal/presence/presence.go:Config.Now": clock,
	"server/internal/access/access.go:Config.Now":     clock,
	"server/internal/sessions/seek.go:Look.here": "the session that is found may move away, and " +
		"another one is looked for",
	"server/internal/sessions/open.go:ResumeRequest.Yield": "whether the client has closed " +
		"its side is asked at the moment that counts",
	"server/internal/session/session.go:Raised.may": "asked under the session's lock, " +
		"after those who remove members have said so",
}

// TestShape_few_callbacks counts fields and parameters of a function type in the exported API of
// the core's packages.
func TestShape_few_callbacks(t *testing.T) {
	found, functions := make(map[string]bool), make(map[string]bool)
	for _, file := range coreFiles(t) {
		ast.Inspect(file, func(n ast.Node) bool {
			if s, ok := n.(*ast.TypeSpec); ok {
				if _, ok := s.Type.(*ast.FuncType); ok {
					functions[s.Name.Name] = true
				}
			}
			return true
		})
	}
	for path, file := range coreFiles(t) {
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Name.IsExported() {
					for name := range functionFields(d.Type.Params, "parameters", functions) {
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
						for name := range functionFields(st.Fields, "fields", functions) {
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
	asking := 0
	for name, reason := range callbacks {
		if reason != clock {
			asking++
		}
		if !found[name] {
			t.Errorf("there is no callback %s", name)
		}
	}
	if asking > mostCallbacks {
		t.Errorf("%d callbacks do more than tell the time, at most %d are allowed", asking,
			mostCallbacks)
	}
}

// functionFields returns the names in a list whose type has a function in it: all parameters,
// exported fields. functions are the named types of functions.
func functionFields(
	list *ast.FieldList, of string, functions map[string]bool,
) map[string]bool {
	names := make(map[string]bool)
	if list == nil {
		return names
	}
	for _, f := range list.List {
		if !mentions(f.Type, func(n ast.Node) bool {
			_, literal := n.(*ast.FuncType)
			id, named := n.(*ast.Ident)
			return literal || named && functions[id.Name]
		}) {
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

// mentions reports whether a node of a type is as wanted.
func mentions(of ast.Expr, wanted func(ast.Node) bool) (found bool) {
	ast.Inspect(of, func(n ast.Node) bool {
		found = found || n != nil && wanted(n)
		return !found
	})
	return found
}

// isFlag reports whether a type has a Boolean in it, atomic or not.
func isFlag(of ast.Expr) bool {
	return mentions(of, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		return ok && (id.Name == "bool" || id.Name == "Bool")
	})
}

// flags are the numbers of Booleans in the structs of the session's package: first those in its
// values, each a fact that no other value says, then those in what its calls take and return.
var flags = map[string]int{
	"chats": 1, "progress": 5, "reconcile": 1, "statuses": 1,

	"At": 2, "Lagging": 1, "LeaseAnswer": 2, "Left": 1, "Notification": 1, "Position": 1,
	"Positions": 1, "Snapshot": 6, "chatStep": 1, "find": 1, "kept": 1, "snapshotProgress": 5,
}

// TestShape_few_flags_in_the_values_of_a_session: a further Boolean needs a thought about a state
// with a name.
func TestShape_few_flags_in_the_values_of_a_session(t *testing.T) {
	found := make(map[string]int)
	for path, file := range coreFiles(t) {
		if filepath.Dir(path) != "server/internal/session" {
			continue
		}
		for name, st := range structs(file) {
			for _, f := range st.Fields.List {
				if isFlag(f.Type) {
					found[name] += max(len(f.Names), 1)
				}
			}
		}
	}
	for name, n := range found {
		if n != flags[name] {
			t.Errorf("%s has %d Booleans, want %d", name, n, flags[name])
		}
	}
	for name := range flags {
		if found[name] == 0 {
			t.Errorf("there is no %s with Booleans", name)
		}
	}
}

// TestShape_two_batchers_and_two_messages: one package batches, in two ways. Content is in what is
// to be stored and in what is stored. Other shapes of a message refer to these.
func TestShape_two_batchers_and_two_messages(t *testing.T) {
	var batchers, messages []string
	for path, source := range goFiles(t) {
		path = strings.TrimPrefix(path, "../")
		if strings.HasPrefix(path, "test/") || strings.HasPrefix(path, "bench/") ||
			strings.HasPrefix(path, "tools/") || strings.Contains(path, "test/") ||
			strings.HasSuffix(path, ".gen.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for name, st := range structs(file) {
			fields := make(map[string]bool)
			for _, f := range st.Fields.List {
				for _, n := range f.Names {
					fields[strings.ToLower(n.Name)] = true
				}
			}
			switch {
			case filepath.Dir(path) == "internal/batch" && ast.IsExported(name) &&
				name != "Config" && filepath.Base(path) != "watch.go", // which batches nothing
				strings.HasSuffix(strings.ToLower(name), "batcher"):
				batchers = append(batchers, path+":"+name)
			case fields["content"] && fields["contenttype"] && fields["attachments"]:
				messages = append(messages, path+":"+name)
			}
		}
	}
	slices.Sort(batchers)
	slices.Sort(messages)
	if diff := cmp.Diff([]string{
		"internal/batch/batcher.go:Batcher", "internal/batch/keyed.go:Keyed",
	}, batchers); diff != "" {
		t.Errorf("batchers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{
		"client/send.go:Draft", // what a client may say of a message, and nothing else

		"importer/jsonl/line.go:messageLine", // the fields of the format
		"message.go:Draft", "message.go:Message",
		"storage/postgres/ranges.go:messageRow", // the columns, scanned
	}, messages); diff != "" {
		t.Errorf("messages (-want +got):\n%s", diff)
	}
}

// TestShape_session_is_values_and_not_flags: a session is its identity, one lock, and nine values.
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
				if isFlag(f.Type) {
					t.Errorf("Session.%v is a Boolean", f.Names)
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
		"storage":                  "the contract: one role for each kind of data, and its values",
		"transports/auth":          "each scope, and each kind of credentials and its keys",
		"transports/limit":         "each limit has its options",
		"transports/internal/wire": "one decoder or encoder for each body and frame",
		"server/internal/session":  "the session, its reader, and what they take and give",
		"storage/dynamodb/internal/record": "each kind of item: its table, key, value, reader " +
			"and writer",
		"bench/internal/client": "one call for each request of the API",
		"reach":                 "an outlet, its states, and a request and an answer for each call",
		"reach/push": "the contract: each kind, outcome, urgency and preview, and " +
			"their bounds",
		"reach/push/pushtest": "one name for each trouble of a provider",
		"test/faults/dynamo":  "one name for each fault",
		"test/chaos/checker":  "one name for each thing that a log records",
	}
	manyFields = map[string]string{
		"server/bus/bus.go:Event":                      "a pointer for each kind of event",
		"chat.go:Chat":                                 "a chat as it is stored",
		"message.go:Draft":                             "what client and server say",
		"server/server.go:Server":                      "one for each layer of the core",
		"server/config.go:Config":                      "one for each setting of the core",
		"transports/transports.go:Config":              "one for each part and setting of HTTP",
		"server/internal/session/host.go:Host":         "what all sessions of a node share",
		"server/internal/session/snapshot.go:Snapshot": "a session in writing: all eight values",
		"transports/websocket/connection.go:connection": "a socket, its session and both " +
			"directions",
		"server/internal/session/progress.go:progress": "a position in a chat, and what waits " +
			"for it",
		"storage/sqlite/cache.go:chat":          "a row of the table chats",
		"storage/postgres/ranges.go:messageRow": "a row of the table messages",
		"bench/listener.go:listener":            "what a listener counts",
		"bench/report.go:Report":                "one for each figure of the report",
		"bench/run.go:run":                      "what a run measures",
		"bench/storm.go:Storm":                  "one for each figure of the report",
		"bench/survivor.go:survivor":            "what a client checks while its server is away",
		"test/chaos/checker/log.go:Log":         "one for each kind of entry",
		"test/chaos/client/device.go:Device":    "a device with all its transports",
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
