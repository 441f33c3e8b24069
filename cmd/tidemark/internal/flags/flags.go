// Package flags derives a command line from a struct. A field with the tag cmd is a command, and
// every other field is a flag. One declaration holds the flag, its environment variable, its key in
// a file, and its help, so these cannot disagree.
//
// It finds fields by reflection, but methods by interfaces only. If it looked up methods by name,
// the linker would keep every method of every type (docs/internals/decisions.md).
// That would double the size of the program.
//
// The tags of a field:
//
//	cmd:""            a command: a struct of flags or of commands
//	embed:""          a struct whose flags belong to the command, like those of an embedded struct
//	name:"x"          the name, if not the field's name in lower case with hyphens
//	help:"…"          a sentence; ${default} and ${enum} stand for the values of these tags
//	default:"…"       the value if none is given
//	env:"X"           the environment variable
//	placeholder:"X"   the name of the value in the help
//	enum:"a,b"        the allowed values
//	required:""       the flag must be given; the file does not count
//	negatable:""      the flag has a negative form, --no-x
//	flags:"-"         the field is not a flag
//
// Values are strings, booleans, integers, floats and durations, pointers to those, and lists of
// those. The elements of a list are separated by commas, or the flag is repeated.
package flags

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
	"unicode"
)

// ErrHelp is the error of Parse if the arguments contain --help. Command is the command before it.
type ErrHelp struct{ Command *Command }

func (ErrHelp) Error() string { return "--help was given" }

// Command is a command, or the whole command line. Parse may be called once.
type Command struct {
	// Name is the word of the command, or the program's name for the whole line.
	Name string
	Help string
	// Value is a pointer to the struct that describes the command.
	Value    any
	Flags    []*Flag
	Commands []*Command
	// Parent is nil for the whole line.
	Parent *Command
}

// Flag is a flag of a command.
type Flag struct {
	Name, Help, Default, Env, Placeholder string
	Enum                                  []string
	Required, Negatable                   bool

	value reflect.Value
	given bool // on the command line
}

// New returns the command line that the struct *root describes.
// It returns an error if a field cannot be a flag. Parse sets the defaults.
func New(program, help string, root any) (*Command, error) {
	c := &Command{Name: program, Help: help, Value: root}
	value := reflect.ValueOf(root)
	if value.Kind() != reflect.Pointer || value.Elem().Kind() != reflect.Struct {
		return nil, fmt.Errorf("flags are described by a pointer to a struct, got %T", root)
	}
	return c, c.describe(value.Elem())
}

func (c *Command) describe(value reflect.Value) error {
	var wrong []error
	for i := range value.NumField() {
		field := value.Type().Field(i)
		_, isCommand := field.Tag.Lookup("cmd")
		_, embedded := field.Tag.Lookup("embed")
		switch {
		case field.Tag.Get("flags") == "-", !field.Anonymous && !field.IsExported():
		case isCommand:
			child := &Command{
				Name:   named(field),
				Help:   field.Tag.Get("help"),
				Value:  value.Field(i).Addr().Interface(),
				Parent: c,
			}
			c.Commands = append(c.Commands, child)
			wrong = append(wrong, child.describe(value.Field(i)))
		case embedded || field.Anonymous:
			wrong = append(wrong, c.describe(value.Field(i)))
		default:
			flag := newFlag(field, value.Field(i))
			if !settable(flag.value.Type()) {
				wrong = append(wrong, fmt.Errorf("--%s is a %s, which cannot be a flag",
					flag.Name, flag.value.Type()))
			}
			c.Flags = append(c.Flags, flag)
		}
	}
	return errors.Join(wrong...)
}

func newFlag(field reflect.StructField, value reflect.Value) *Flag {
	tag := field.Tag
	_, required := tag.Lookup("required")
	_, negatable := tag.Lookup("negatable")
	f := &Flag{
		Name:        named(field),
		Default:     tag.Get("default"),
		Env:         tag.Get("env"),
		Placeholder: tag.Get("placeholder"),
		Required:    required,
		Negatable:   negatable,
		value:       value,
	}
	if enum := tag.Get("enum"); enum != "" {
		f.Enum = strings.Split(enum, ",")
	}
	values := strings.NewReplacer("${default}", f.Default, "${enum}", tag.Get("enum"))
	f.Help = values.Replace(tag.Get("help"))
	return f
}

// named returns the name of a flag or a command.
func named(field reflect.StructField) string {
	if name := field.Tag.Get("name"); name != "" {
		return name
	}
	var b strings.Builder
	for i, r := range field.Name {
		if unicode.IsUpper(r) && i > 0 {
			b.WriteByte('-')
		}
		b.WriteRune(unicode.ToLower(r))
	}
	return b.String()
}

// settable reports whether a flag can have the type t.
func settable(t reflect.Type) bool {
	switch t.Kind() { //nolint:exhaustive // other kinds are not supported
	case reflect.Pointer, reflect.Slice:
		kind := t.Elem().Kind()
		return kind != reflect.Pointer && kind != reflect.Slice && settable(t.Elem())
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Float64:
		return true
	}
	return false
}

// Path returns the words of the command, without the program.
func (c *Command) Path() []string {
	if c.Parent == nil {
		return nil
	}
	return append(c.Parent.Path(), c.Name)
}

// all returns the flags of a command and of its parents.
func (c *Command) all() []*Flag {
	if c == nil {
		return nil
	}
	return append(c.Parent.all(), c.Flags...)
}

// Flag returns the flag with that name, of the command or a parent, or nil.
func (c *Command) Flag(name string) *Flag {
	all := c.all()
	if i := slices.IndexFunc(all, func(f *Flag) bool { return f.Name == name }); i >= 0 {
		return all[i]
	}
	return nil
}

// Text returns the value of a flag that is a string.
func (f *Flag) Text() string { return f.value.String() }

// isBool reports whether the flag is a boolean, which needs no value.
func (f *Flag) isBool() bool { return f.value.Kind() == reflect.Bool }

func (f *Flag) isList() bool { return f.value.Kind() == reflect.Slice }

// duration returns the type time.Duration, whose values are written like 10s.
func duration() reflect.Type { return reflect.TypeFor[time.Duration]() }
