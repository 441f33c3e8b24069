package main

import (
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/reach/hook"
)

// hookFlags configure the hook that is asked before messages are stored (docs/moderation.md).
type hookFlags struct {
	HookURL        string        `name:"hook-url" env:"TIDEMARK_HOOK_URL" placeholder:"URL" help:"URL that is asked about each message before it is stored. Needs --hook-secret-file. Give all nodes the same one."`
	HookSecretFile string        `name:"hook-secret-file" env:"TIDEMARK_HOOK_SECRET_FILE" placeholder:"FILE" help:"File with the secret that signs these requests, as those of webhooks: whsec_ and base64 of 24 to 64 bytes. A second line may have the secret before."`
	HookTimeout    time.Duration `name:"hook-timeout" env:"TIDEMARK_HOOK_TIMEOUT" placeholder:"TIME" help:"How long a message waits for an answer, at most 5s. Default 500ms."`
	HookFailure    string        `name:"hook-failure" env:"TIDEMARK_HOOK_FAILURE" placeholder:"POLICY" help:"What happens to a message without an answer: open stores it, closed refuses it with 503. Default open."`
}

// mostHookTimeout bounds --hook-timeout. Clients wait for about ten seconds.
const mostHookTimeout = 5 * time.Second

// settings checks the flags. It returns nil without --hook-url.
func (f *hookFlags) settings() (*hook.Config, error) {
	switch {
	case f.HookURL == "" && (f.HookSecretFile != "" || f.HookTimeout != 0 || f.HookFailure != ""):
		return nil, usagef("--hook-secret-file, --hook-timeout and --hook-failure need --hook-url")
	case f.HookURL == "":
		return nil, nil //nolint:nilnil // there is no hook
	case f.HookSecretFile == "":
		return nil, usagef("--hook-url needs --hook-secret-file, with a secret such as " +
			"`echo whsec_$(openssl rand -base64 32)` prints")
	case f.HookTimeout < 0 || f.HookTimeout > mostHookTimeout:
		return nil, usagef("--hook-timeout is %v; it must be above 0 and at most %v",
			f.HookTimeout, mostHookTimeout)
	case f.HookFailure != "" && f.HookFailure != "open" && f.HookFailure != "closed":
		return nil, usagef("--hook-failure %q: the policies are open and closed", f.HookFailure)
	}
	text, err := os.ReadFile(f.HookSecretFile)
	if err != nil {
		return nil, usagef("--hook-secret-file: %w", err)
	}
	cfg := &hook.Config{
		URL: f.HookURL, Secrets: strings.Fields(string(text)), Timeout: f.HookTimeout,
		Closed: f.HookFailure == "closed",
	}
	if _, err := hook.New(*cfg); err != nil {
		return nil, usagef("--hook-url or --hook-secret-file: %s", tidemark.DetailOf(err))
	}
	return cfg, nil
}

// hook returns what is asked about messages, or nil.
func (o *options) hook(log *slog.Logger) (*hook.Hook, error) {
	if o.outlet.hook == nil {
		return nil, nil //nolint:nilnil // there is no hook
	}
	cfg := *o.outlet.hook
	cfg.Logger = log
	return hook.New(cfg)
}
