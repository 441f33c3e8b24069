package problem

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime/debug"

	"github.com/labstack/echo/v4"
)

// Recover returns a middleware that turns a handler's panic into an Internal error and logs its
// stack. It lets http.ErrAbortHandler pass, because a handler uses it to cut its connection on
// purpose.
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
