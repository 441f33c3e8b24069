// Package web holds the page that the server shows at `/`: plain ES modules, no build step, no dependencies.
// It is a small but honest client: it acknowledges only what it has stored, and derives every tick from
// boundaries.
package web

import (
	"embed"
	"io/fs"
)

//go:embed app
var files embed.FS

// App returns the files of the page, index.html at the root. They never change while the process runs, and
// load nothing from elsewhere: the strictest Content-Security-Policy fits them
// (default-src 'none'; script-src, style-src, img-src, connect-src 'self').
func App() fs.FS {
	app, err := fs.Sub(files, "app")
	if err != nil {
		panic(err) // The name is a constant and valid, so fs.Sub cannot fail.
	}
	return app
}
