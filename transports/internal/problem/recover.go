package problem

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/labstack/echo/v4"
)

// Recover returns the middleware that turns a panic of a handler into an Internal error, and logs where it came from.
// http.ErrAbortHandler, by which a handler cuts its connection on purpose, passes.
func Recover(logger *slog.Logger) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) (err error) {
			defer func() {
				p := recover()
				if p == nil {
					return
				}
				if abort, ok := p.(error); ok && errors.Is(abort, http.ErrAbortHandler) {
					panic(p)
				}
				logger.Error("a handler panicked", "method", c.Request().Method, "route", c.Path(),
					"request_id", RequestID(c), "panic", p, "stack", string(debug.Stack()))
				err = fmt.Errorf("panic: %v", p)
			}()
			return next(c)
		}
	}
}
