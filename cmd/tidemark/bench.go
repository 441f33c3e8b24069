package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/tidemark-im/tidemark"
	"github.com/tidemark-im/tidemark/bench"
	"github.com/tidemark-im/tidemark/transports/auth"
)

// benchCommand runs the load generator.
// Without TIDEMARK_JWT_SECRET, its users have the tokens of `serve --dev`.
type benchCommand struct {
	P2P     pairsCommand   `cmd:"" name:"p2p" help:"Pairs of users: stored, confirmed, delivered, acknowledged, ticked."`
	Group   groupCommand   `cmd:"" help:"One chat with all members online: the fan-out."`
	Mixed   mixedCommand   `cmd:"" help:"Hours of pairs and groups whose devices come and go: memory must not grow."`
	Idle    idleCommand    `cmd:"" help:"Connections that do nothing: the memory of each, on a new server."`
	Catchup catchupCommand `cmd:"" help:"Users who were offline come back."`
	Curve   curveCommand   `cmd:"" help:"What a message or an open costs while members, messages, chats or the rate grow."`
	Storm   stormCommand   `cmd:"" help:"Stop and start the server under load: how long it takes, and how clients come back."`
}

// benchTokens is how long the tokens of a run are valid.
const benchTokens = 24 * time.Hour

// common are the flags of every mode.
type common struct {
	bench.Load
	JSON bool `name:"json" help:"Print JSON instead of tables."`
}

type pairsCommand struct {
	common
	bench.Pairs
}

type groupCommand struct {
	common
	bench.Group
}

type mixedCommand struct {
	common
	bench.Mixed
}

type idleCommand struct {
	common
	bench.Idle
}

type catchupCommand struct {
	common
	bench.Catchup
}

type curveCommand struct {
	common
	bench.Curve
	Plot string `placeholder:"FILE" type:"path" help:"Also draw the curve into this SVG file."`
}

type stormCommand struct {
	common
	bench.Storm
}

// Run runs the mode storm.
func (c *stormCommand) Run(ctx context.Context, std streams) error {
	return c.measure(ctx, std, &c.Storm)
}

// Run runs the mode p2p.
func (c *pairsCommand) Run(ctx context.Context, std streams) error {
	return c.measure(ctx, std, &c.Pairs)
}

// Run runs the mode group.
func (c *groupCommand) Run(ctx context.Context, std streams) error {
	return c.measure(ctx, std, &c.Group)
}

// Run runs the mode mixed.
func (c *mixedCommand) Run(ctx context.Context, std streams) error {
	return c.measure(ctx, std, &c.Mixed)
}

// Run runs the mode idle.
func (c *idleCommand) Run(ctx context.Context, std streams) error {
	return c.measure(ctx, std, &c.Idle)
}

// Run runs the mode catchup.
func (c *catchupCommand) Run(ctx context.Context, std streams) error {
	return c.measure(ctx, std, &c.Catchup)
}

// Run measures a curve.
func (c *curveCommand) Run(ctx context.Context, std streams) error {
	if err := c.authenticate(); err != nil {
		return err
	}
	report, err := bench.RunCurve(ctx, c.Load, &c.Curve)
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	if err := c.print(std, report); err != nil || c.Plot == "" {
		return err
	}
	file, err := os.Create(c.Plot)
	if err != nil {
		return fmt.Errorf("bench: the plot: %w", err)
	}
	return errors.Join(report.WritePlot(file), file.Close())
}

func (c *common) measure(ctx context.Context, std streams, mode bench.Mode) error {
	if err := c.authenticate(); err != nil {
		return err
	}
	report, err := bench.Run(ctx, c.Load, mode)
	if err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	return c.print(std, report)
}

// authenticate sets how users get their tokens.
func (c *common) authenticate() error {
	key, err := secret()
	if err != nil {
		return err
	}
	c.Token = func(user string) string { return "dev:" + user }
	if key != nil {
		signer := auth.Signer{Secret: key}
		c.Token = func(user string) string {
			signed, err := signer.Sign(tidemark.UserID(user), "", time.Now(), benchTokens)
			if err != nil {
				return "" // the server refuses the empty token, and the run reports that
			}
			return signed
		}
	}
	return nil
}

// report is what a run has found.
type report interface {
	WriteTable(w io.Writer) error
	WriteJSON(w io.Writer) error
	OK() bool
}

// print writes a report. It fails if the run did.
func (c *common) print(std streams, report report) error {
	write := report.WriteTable
	if c.JSON {
		write = report.WriteJSON
	}
	if err := write(std.out); err != nil {
		return err
	}
	if !report.OK() {
		return errors.New("bench: the run failed; its problems are listed above")
	}
	return nil
}
