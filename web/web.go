// Package web contains the page that the server shows at `/`, and the console for operators that it
// shows at `/console`.
// Their sources are in app, and what Vite builds from them is in dist: `make page` builds it anew.
// The page uses the client of package.json's name @tidemark/client, which is in client.
package web

import (
	"embed"
	"io/fs"
)

//go:embed dist
var files embed.FS

// App returns the files of both, with the page's index.html at the root and the console's in
// console.
// Names below assets contain a hash of their content.
// They never change while the process runs, and load nothing from other hosts.
// So the strictest Content-Security-Policy fits them: default-src 'none'; script-src, style-src,
// img-src, connect-src, manifest-src, worker-src 'self'.
func App() fs.FS {
	app, err := fs.Sub(files, "dist")
	if err != nil {
		panic(err) // fs.Sub cannot fail, because the name is a valid constant
	}
	return app
}
