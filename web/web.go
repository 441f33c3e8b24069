// Package web contains the page that the server shows at `/`.
// It consists of plain ES modules, with no build step and no dependencies.
// The page is a small, correct client: it acknowledges only what it has stored, and derives every
// tick from boundaries.
package web

import (
	"embed"
	"io/fs"
)

//go:embed app
var files embed.FS

// App returns the files of the page, with index.html at the root.
// They never change while the process runs, and load nothing from other hosts.
// So the strictest Content-Security-Policy fits them: default-src 'none'; script-src, style-src,
// img-src, connect-src 'self'.
func App() fs.FS {
	app, err := fs.Sub(files, "app")
	if err != nil {
		panic(err) // fs.Sub cannot fail, because the name is a valid constant
	}
	return app
}
