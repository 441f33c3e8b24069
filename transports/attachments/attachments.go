// Package attachments is the adapter of files. openapi.yaml is the contract of the two calls below
// /attachments. It also serves the URLs below /files, which attachments/dir signs: clients take
// them as they are, like those of another server.
package attachments

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/attachments"
	"github.com/tidemark-im/tidemark/attachments/dir"
	"github.com/tidemark-im/tidemark/server"
	"github.com/tidemark-im/tidemark/transports/auth"
	"github.com/tidemark-im/tidemark/transports/internal/api"
	"github.com/tidemark-im/tidemark/transports/internal/body"
	"github.com/tidemark-im/tidemark/transports/internal/problem"
	"github.com/tidemark-im/tidemark/transports/internal/wire"
	"github.com/tidemark-im/tidemark/transports/limit"
)

// Files is the path below that of the API at which URLs of a directory are served.
const Files = "/files"

// Config configures an Adapter. Server and Auth are required.
type Config struct {
	Server *server.Server
	Auth   *auth.Authenticator
	// Limit bounds the calls of a user. nil: no bound.
	Limit *limit.Limiter
	// Attachments is nil if the server keeps no files. The calls then answer NotFound.
	Attachments *attachments.Attachments
	// Dir has the files whose URLs are served here. It is nil if the URLs lead elsewhere.
	Dir *dir.Dir
}

// Adapter serves files. It is safe for concurrent use.
type Adapter struct {
	Config
	transfers transfers
}

// New returns an adapter. It starts no goroutine.
func New(cfg Config) *Adapter {
	return &Adapter{Config: cfg, transfers: transfers{of: make(map[string]int)}}
}

// Mount adds the routes below a base path.
func (a *Adapter) Mount(e *echo.Echo, base string) {
	e.POST(base+"/attachments", a.guarded(auth.ScopeSend, limit.LargeCall, a.announce))
	e.GET(base+"/attachments/:attachment_id", a.guarded(auth.ScopeAct, limit.Call, a.open))
	if a.Dir != nil {
		e.PUT(base+Files+"/:id", a.receive)
		e.Match([]string{http.MethodGet, http.MethodHead}, base+Files+"/:id", a.serve)
	}
}

// call is a call of a user. ctx outlives a client that does not wait.
type call struct {
	echo.Context
	ctx    context.Context
	caller server.Caller
}

// guarded authenticates the caller, and counts the call.
func (a *Adapter) guarded(scope auth.Scope, cost int, handle func(call) error) echo.HandlerFunc {
	return func(c echo.Context) error {
		c.Response().Header().Set(api.IncarnationHeader, string(a.Server.Incarnation()))
		id, err := a.Auth.Header(c.Request())
		if err != nil {
			return err
		}
		//rule:caller_does_only_what_they_may.files-need-the-scope
		if err := id.Permits(scope); err != nil {
			return err
		}
		quota, err := a.Limit.Call(id.Payer(), cost)
		quota.Put(c.Response().Header())
		if err != nil {
			return err
		}
		if a.Attachments == nil {
			return tidemark.Errorf(tidemark.NotFound,
				"this server keeps no files; its operator can change that (serve --attachments)")
		}
		ctx, cancel := api.Detached(c.Request())
		defer cancel()
		return handle(call{Context: c, ctx: ctx, caller: id.Caller})
	}
}

func (a *Adapter) announce(c call) error {
	raw, err := body.Read(c, false)
	if err != nil {
		return err
	}
	asked, err := wire.DecodeNewFile(raw)
	if err != nil {
		return err
	}
	made, err := a.Attachments.Announce(c.ctx, c.caller.User, attachments.File{
		Name: asked.Name, Type: asked.Type, Size: asked.Size, Sum: attachments.Sum(asked.SHA256),
	})
	if tidemark.CodeOf(err) == tidemark.Exhausted {
		// The quota is that of a day of UTC, to whose begin Truncate goes back.
		const day = 24 * time.Hour
		now := time.Now()
		return problem.RetryAfter(err, now.Truncate(day).Add(day).Sub(now))
	}
	if err != nil {
		return err
	}
	return c.answer(http.StatusCreated, uploadView{
		ID: made.ID, URL: made.URL, Method: made.Method, Headers: made.Header,
		ExpiresAt: made.Expires.Format(tidemark.TimeLayout),
	})
}

func (a *Adapter) open(c call) error {
	file := api.PathParam(c, "attachment_id")
	if err := tidemark.CheckID("attachment_id", file); err != nil {
		return err
	}
	ref := tidemark.MessageRef{ChatID: tidemark.ChatID(c.QueryParam("chat_id"))}
	if err := tidemark.CheckID("chat_id", ref.ChatID); err != nil {
		return err
	}
	var err error
	ref.Sequence, err = wire.ParseSequence(c.QueryParam("sequence"), "sequence", 1,
		tidemark.InvalidSequence)
	if err != nil {
		return err
	}
	//rule:no_file_outside_membership.readers-of-the-message
	message, err := a.Server.Message(c.ctx, c.caller.User, ref)
	if err != nil {
		return err
	}
	named, err := tidemark.FilesOf(message.Attachments)
	//rule:no_file_outside_membership.files-of-the-message
	if err != nil || !slices.Contains(named, file) {
		return tidemark.Errorf(tidemark.NotFound, "the message %d of the chat %s does not have "+
			"the file %.40q", ref.Sequence, ref.ChatID, file)
	}
	found, err := a.Attachments.Open(c.ctx, c.caller.User, file)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, downloadView{
		ID: found.ID, Name: found.Name, Type: found.Type, Size: found.Size, Sum: found.Sum,
		URL: found.URL, ExpiresAt: found.Expires.Format(tidemark.TimeLayout),
	})
}

// uploadView is an announced file as the API has it.
type uploadView struct {
	ID        string            `json:"attachment_id"`
	URL       string            `json:"url"`
	Method    string            `json:"method"`
	Headers   map[string]string `json:"headers"`
	ExpiresAt string            `json:"expires_at"`
}

// downloadView is a file of a message as the API has it.
type downloadView struct {
	ID        string          `json:"attachment_id"`
	Name      string          `json:"name"`
	Type      string          `json:"type"`
	Size      int64           `json:"size"`
	Sum       attachments.Sum `json:"sha256"`
	URL       string          `json:"url"`
	ExpiresAt string          `json:"expires_at"`
}

// answer writes a JSON body, which no cache may keep. The & of a URL stays as it is.
func (c call) answer(status int, body any) error {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(body); err != nil {
		return err
	}
	c.Response().Header().Set("Cache-Control", "no-store")
	return c.Blob(status, "application/json", bytes.TrimSuffix(text.Bytes(), []byte("\n")))
}
