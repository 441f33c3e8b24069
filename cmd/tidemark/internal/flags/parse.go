package flags

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// File is a source of values between environment variables and defaults: the value of a flag by its name.
type File map[string]any

// Parse reads the arguments, and gives every flag of the command that they name its value: that of the command line, else of its environment variable, even an empty one, else
// of the file, else its default. open, if not nil, returns the file for the command, whose flags have their values but for those of the file. Parse returns the command, or
// ErrHelp, or what is wrong, which may repeat an argument.
func (c *Command) Parse(args []string, open func(*Command) (File, error)) (*Command, error) {
	p := parser{command: c, rest: args}
	for len(p.rest) > 0 {
		if err := p.next(); err != nil {
			return nil, err
		}
	}
	chosen := p.command
	if len(chosen.Commands) > 0 {
		return nil, fmt.Errorf("expected one of %s", names(chosen.Commands))
	}
	var missing []string
	fromFile := make(map[*Flag]bool)
	for _, f := range chosen.all() {
		variable, set := os.LookupEnv(f.Env)
		var err error
		switch {
		case f.given:
		case f.Env != "" && set:
			err = f.set(variable, false)
		case f.Required:
			missing = append(missing, "--"+f.Name+"="+f.placeholder())
		default:
			fromFile[f] = true
			if f.Default != "" {
				err = f.set(f.Default, false)
			}
		}
		if err != nil {
			return nil, err
		}
	}
	if missing != nil {
		return nil, errors.New("missing flags: " + strings.Join(missing, ", "))
	}
	return chosen, chosen.fill(open, fromFile)
}

// fill gives flags the values of the file.
func (c *Command) fill(open func(*Command) (File, error), flags map[*Flag]bool) error {
	if open == nil {
		return nil
	}
	file, err := open(c)
	if err != nil {
		return err
	}
	for _, f := range c.all() {
		if value, there := file[f.Name]; there && flags[f] {
			if err := f.setAny(value); err != nil {
				return err
			}
		}
	}
	return nil
}

func names(commands []*Command) string {
	quoted := make([]string, len(commands))
	for i, c := range commands {
		quoted[i] = strconv.Quote(c.Name)
	}
	return strings.Join(quoted, ", ")
}

// parser goes through the arguments.
type parser struct {
	command *Command
	rest    []string
}

// next takes an argument, and its value if it has one.
func (p *parser) next() error {
	arg := p.rest[0]
	p.rest = p.rest[1:]
	switch {
	case arg == "-h" || arg == "--help":
		return ErrHelp{p.command}
	case strings.HasPrefix(arg, "--") && len(arg) > len("--"):
		return p.flag(arg[len("--"):])
	case strings.HasPrefix(arg, "-") && len(arg) > 1:
		return fmt.Errorf("unknown flag %s", arg)
	}
	for _, child := range p.command.Commands {
		if child.Name == arg {
			p.command = child
			return nil
		}
	}
	if len(p.command.Commands) > 0 {
		return fmt.Errorf("unexpected argument %s, expected one of %s", arg, names(p.command.Commands))
	}
	return fmt.Errorf("unexpected argument %s", arg)
}

func (p *parser) flag(arg string) error {
	name, value, hasValue := strings.Cut(arg, "=")
	f := p.command.Flag(name)
	if f == nil {
		positive, negated := strings.CutPrefix(name, "no-")
		if f = p.command.Flag(positive); !negated || f == nil || !f.Negatable || hasValue {
			return fmt.Errorf("unknown flag --%s", name)
		}
		value, hasValue = "false", true
	}
	switch {
	case hasValue:
	case f.isBool():
		value = "true"
	case len(p.rest) == 0 || looksLikeFlag(p.rest[0]):
		return fmt.Errorf("--%s needs a value: --%s=%s", f.Name, f.Name, f.placeholder())
	default:
		value, p.rest = p.rest[0], p.rest[1:]
	}
	more := f.given
	f.given = true
	return f.set(value, more)
}

// looksLikeFlag tells a forgotten value from one that begins with a hyphen: only numbers may.
func looksLikeFlag(arg string) bool {
	if !strings.HasPrefix(arg, "-") || arg == "-" {
		return false
	}
	_, err := strconv.ParseFloat(arg, 64)
	return err != nil
}
