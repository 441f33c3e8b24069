package flags

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// File holds the values of a configuration file, by the name of the flag.
type File map[string]any

// Parse sets the flags of the command that the arguments name, and returns this command.
// A flag's value is that of the command line, else of its environment variable, even if empty,
// else of the file, else its default.
// open, if not nil, returns the file. At that point the flags have their values from all other
// sources. Parse returns ErrHelp after --help. Other errors may repeat an argument.
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

// fill sets the given flags to their values in the file.
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

// parser parses the arguments one by one.
type parser struct {
	command *Command
	rest    []string
}

// next parses an argument, and its value if it has one.
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
		return fmt.Errorf("unexpected argument %s, expected one of %s",
			arg, names(p.command.Commands))
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

// looksLikeFlag reports whether arg is a flag, which means that a value was forgotten.
// Of the values, only numbers may begin with a hyphen.
func looksLikeFlag(arg string) bool {
	if !strings.HasPrefix(arg, "-") || arg == "-" {
		return false
	}
	_, err := strconv.ParseFloat(arg, 64)
	return err != nil
}
