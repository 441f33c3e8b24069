// Package vfstest puts a layer between SQLite and the operating system that fails when a test says so: the n-th write, an fsync, a read. SQLite calls it
// a VFS (sqlite.org/vfs.html). It is the tool of SQLite's own tests, and cannot be had from outside: no file system here fails on demand.
package vfstest

import (
	"strings"
	"sync"
	"testing"
	"unsafe"

	"modernc.org/libc"
	lib "modernc.org/sqlite/lib"
)

// An Op is what SQLite asks of a file.
type Op string

// The operations that can fail. Map is the growth of the log's shared index.
const (
	Read     Op = "read"
	Write    Op = "write"
	Sync     Op = "sync"
	Truncate Op = "truncate"
	Map      Op = "map"
)

// A Call is one operation on one file.
type Call struct {
	Op Op
	// File is the suffix of the file's name behind the database's: "" for the database itself, "-wal", "-journal".
	File string
	// Nth counts the calls since Arm, from 1, this one included.
	Nth int
	// End is where a write ends in the file.
	End int64
}

// A Fault is what becomes of a call.
type Fault int

// The faults. Full and Short are for writes; elsewhere they are Broken, but that a Map with Full finds no space.
const (
	// None lets the call through.
	None Fault = iota
	// Broken does nothing and reports an input/output error.
	Broken
	// Full does nothing and reports that there is no space.
	Full
	// Short does the first half of a write and reports that there is no space.
	Short
	// Lost does half of a write and reports an input/output error.
	Lost
)

// FS is the layer. It is safe for concurrent use.
type FS struct {
	prefix   string
	vfs      *lib.Tsqlite3_vfs
	original *lib.Tsqlite3_vfs
	// kept holds the functions that SQLite has addresses of, which the garbage collector does not see, and the tables of them.
	kept    []any
	methods map[uintptr]*lib.Tsqlite3_io_methods

	mu     sync.Mutex
	decide func(Call) Fault
	calls  int
	fired  int
	files  map[uintptr]string // suffixes by handle
}

// Install puts the layer under every database whose path is prefix and that is opened until the test ends. Tests that install one must not run in parallel.
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

// Arm has decide say what becomes of each call from now on, and starts counting anew. It is called under a lock.
func (f *FS) Arm(decide func(Call) Fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decide, f.calls, f.fired = decide, 0, 0
}

// Disarm lets every call through from now on, and returns how many failed since Arm.
func (f *FS) Disarm() (fired int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.decide = nil
	return f.fired
}

// fault decides about a call on a file.
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

// open opens a file by the original layer, and replaces the functions of its handle if it is one of ours.
func (f *FS) open(tls *libc.TLS, vfs, name, file uintptr, flags int32, outFlags uintptr) int32 {
	open := function[func(*libc.TLS, uintptr, uintptr, uintptr, int32, uintptr) int32](f.original.FxOpen)
	rc := open(tls, vfs, name, file, flags, outFlags)
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

// replaced returns the table of functions that stands for an original one.
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

// pointer makes a pointer of an address in SQLite's memory.
func pointer(p uintptr) unsafe.Pointer { return *(*unsafe.Pointer)(unsafe.Pointer(&p)) }
