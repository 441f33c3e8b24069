// Package vfstest adds a layer between SQLite and the operating system, in which a test can make
// calls fail: the n-th write, an fsync, a read. SQLite calls such a layer a VFS
// (sqlite.org/vfs.html), and its own tests use one. From outside of SQLite a test cannot do this,
// because no file system fails on demand.
package vfstest

import (
	"strings"
	"sync"
	"testing"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// Op is an operation of SQLite on a file.
type Op string

// The operations that can fail. Map extends the log's shared index.
const (
	Read     Op = "read"
	Write    Op = "write"
	Sync     Op = "sync"
	Truncate Op = "truncate"
	Map      Op = "map"
)

// Call is one operation on one file.
type Call struct {
	Op Op
	// File is the suffix after the database's name: "" for the database itself, "-wal", "-journal".
	File string
	// Nth is the number of the call since Arm. The first call has 1.
	Nth int
	// End is the offset in the file at which a write ends.
	End int64
}

// Fault says how a call fails.
type Fault int

// The faults. Full and Short are for writes. For other calls they act like Broken, except that Map
// with either finds no space.
const (
	// None passes the call through.
	None Fault = iota
	// Broken does nothing, and reports an input/output error.
	Broken
	// Full does nothing, and reports that there is no space.
	Full
	// Short does the first half of a write, and reports that there is no space.
	Short
	// Lost does the first half of a write, and reports an input/output error.
	Lost
)

// FS is the layer. It is safe for concurrent use.
type FS struct {
	prefix   string
	vfs      *lib.Tsqlite3_vfs
	original *lib.Tsqlite3_vfs
	// kept holds the functions whose addresses SQLite has, because the garbage collector does not
	// see them. methods holds the replaced tables of functions by their originals.
	kept    []any
	methods map[uintptr]*lib.Tsqlite3_io_methods

	mu     sync.Mutex
	decide func(Call) Fault
	calls  int
	fired  int
	files  map[uintptr]string // suffixes by handle
}

// Install adds the layer to every database whose path is prefix and that is opened before the test
// ends. Tests that call it must not run in parallel.
func Install(t testing.TB, prefix string) *FS {
	t.Helper()
	tls := libc.NewTLS()
	f := &FS{
		prefix:  prefix,
		methods: map[uintptr]*lib.Tsqlite3_io_methods{},
		files:   map[uintptr]string{},
	}
	original := lib.Xsqlite3_vfs_find(tls, 0)
	f.original = (*lib.Tsqlite3_vfs)(pointer(original))
	name, err := libc.CString("vfstest")
	if err != nil {
		t.Fatal(err)
	}
	at := lib.Xsqlite3_malloc(tls, int32(unsafe.Sizeof(lib.Tsqlite3_vfs{})))
	f.vfs = (*lib.Tsqlite3_vfs)(pointer(at))
	*f.vfs = *f.original
	f.vfs.FzName, f.vfs.FpNext = name, 0
	f.vfs.FxOpen = address(f, f.open)
	if rc := lib.Xsqlite3_vfs_register(tls, at, 1); rc != lib.SQLITE_OK {
		t.Fatalf("the layer cannot be registered: %d", rc)
	}
	t.Cleanup(func() {
		lib.Xsqlite3_vfs_unregister(tls, at)
		lib.Xsqlite3_vfs_register(tls, original, 1)
		for _, m := range f.methods {
			lib.Xsqlite3_free(tls, uintptr(unsafe.Pointer(m)))
		}
		lib.Xsqlite3_free(tls, at)
		libc.Xfree(tls, name)
		tls.Close()
	})
	return f
}

// Arm makes decide choose the fault of each later call, and restarts the count of calls. decide
// runs under a lock.
func (f *FS) Arm(decide func(Call) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decide, f.calls, f.fired = decide, 0, 0
}

// Disarm passes every later call through, and returns the number of faults since Arm.
func (f *FS) Disarm() (fired int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decide = nil
	return f.fired
}

// fault returns the fault of a call on a file.
func (f *FS) fault(file uintptr, op Op, end int64) Fault {
	f.mu.Lock()
	defer f.mu.Unlock()
	suffix, ours := f.files[file]
	if !ours || f.decide == nil {
		return None
	}
	f.calls++
	fault := f.decide(Call{Op: op, File: suffix, Nth: f.calls, End: end})
	if fault != None {
		f.fired++
	}
	return fault
}

// open opens a file with the original layer. If the path matches, it replaces the functions of the
// handle.
func (f *FS) open(tls *libc.TLS, vfs, name, file uintptr, flags int32, outFlags uintptr) int32 {
	type opener = func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32
	rc := function[opener](f.original.FxOpen)(tls, vfs, name, file, flags, outFlags)
	handle := (*lib.Tsqlite3_file)(pointer(file))
	if rc != lib.SQLITE_OK || name == 0 || handle.FpMethods == 0 {
		return rc
	}
	suffix, ours := strings.CutPrefix(libc.GoString(name), f.prefix)
	if !ours {
		return rc
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.files[file] = suffix
	handle.FpMethods = uintptr(unsafe.Pointer(f.replaced(tls, handle.FpMethods)))
	return rc
}

// replaced returns the table of functions that replaces an original one.
func (f *FS) replaced(tls *libc.TLS, original uintptr) *lib.Tsqlite3_io_methods {
	if m := f.methods[original]; m != nil {
		return m
	}
	o := *(*lib.Tsqlite3_io_methods)(pointer(original))
	m := (*lib.Tsqlite3_io_methods)(pointer(lib.Xsqlite3_malloc(tls, int32(unsafe.Sizeof(o)))))
	*m = o
	type transfer = func(*libc.TLS, uintptr, uintptr, int32, int64) int32
	read, write := function[transfer](o.FxRead), function[transfer](o.FxWrite)
	m.FxRead = address(f, func(tls *libc.TLS, file, buffer uintptr, n int32, offset int64) int32 {
		if f.fault(file, Read, 0) != None {
			return lib.SQLITE_IOERR_READ
		}
		return read(tls, file, buffer, n, offset)
	})
	m.FxWrite = address(f, func(tls *libc.TLS, file, buffer uintptr, n int32, offset int64) int32 {
		fault := f.fault(file, Write, offset+int64(n))
		switch fault {
		case None:
			return write(tls, file, buffer, n, offset)
		case Short, Lost:
			_ = write(tls, file, buffer, n/2, offset)
		}
		if fault == Full || fault == Short {
			return lib.SQLITE_FULL
		}
		return lib.SQLITE_IOERR_WRITE
	})
	synchronize := function[func(*libc.TLS, uintptr, int32) int32](o.FxSync)
	m.FxSync = address(f, func(tls *libc.TLS, file uintptr, flags int32) int32 {
		if f.fault(file, Sync, 0) != None {
			return lib.SQLITE_IOERR_FSYNC
		}
		return synchronize(tls, file, flags)
	})
	truncate := function[func(*libc.TLS, uintptr, int64) int32](o.FxTruncate)
	m.FxTruncate = address(f, func(tls *libc.TLS, file uintptr, size int64) int32 {
		if f.fault(file, Truncate, 0) != None {
			return lib.SQLITE_IOERR_TRUNCATE
		}
		return truncate(tls, file, size)
	})
	if o.FxShmMap != 0 {
		shared := function[func(*libc.TLS, uintptr, int32, int32, int32, uintptr) int32](o.FxShmMap)
		m.FxShmMap = address(f,
			func(tls *libc.TLS, file uintptr, region, size, extend int32, to uintptr) int32 {
				switch f.fault(file, Map, 0) {
				case None:
					return shared(tls, file, region, size, extend, to)
				case Full, Short:
					return lib.SQLITE_IOERR_SHMSIZE
				default:
					return lib.SQLITE_IOERR_SHMMAP
				}
			})
	}
	closeFile := function[func(*libc.TLS, uintptr) int32](o.FxClose)
	m.FxClose = address(f, func(tls *libc.TLS, file uintptr) int32 {
		f.mu.Lock()
		delete(f.files, file)
		f.mu.Unlock()
		return closeFile(tls, file)
	})
	f.methods[original] = m
	return m
}

// address returns a Go function as the translated C calls it, and keeps it alive as long as f.
func address[F any](f *FS, function F) uintptr {
	held := &struct{ f F }{function}
	f.kept = append(f.kept, held)
	return *(*uintptr)(unsafe.Pointer(held))
}

// function returns a function of the translated C.
func function[F any](at uintptr) F {
	return *(*F)(unsafe.Pointer(&struct{ at uintptr }{at}))
}

// pointer converts an address in SQLite's memory.
func pointer(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }
