// Package flags makes a command line of a struct. Fields with the tag cmd are commands, the others are flags: one declaration for the flag, its environment variable, its key in a file, and its
// help, so that they cannot disagree. It finds fields by reflection and methods by interfaces only: looking a method up by its name would make the linker keep every
// method of every type of the program, which doubles it (docs/internals/decisions.md).
//
// The tags of a field:
//
//	cmd:""            a command, which is a struct of flags, or of commands
//	embed:""          a struct whose flags are those of the command; so are those of an embedded struct
//	name:"x"          the name, if it is not that of the field in small letters with hyphens
//	help:"…"          a sentence; ${default} and ${enum} stand for what the tags say
//	default:"…"       the value if nobody gives one
//	env:"X"           the environment variable
//	placeholder:"X"   what the help calls the value
//	enum:"a,b"        the values that there are
//	required:""       somebody has to give it on the command line
//	negatable:""      --no-x is there too
//	flags:"-"         no flag
//
// Values are strings, booleans, integers, floats, durations, pointers to those, and lists of those, which are separated by commas or repeated.
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

// ErrHelp says that --help was asked for. Command is the one it was asked of.
type ErrHelp struct{ Command *Command }

func (ErrHelp) Error() string { return "help was asked for" }

// Command is a command, or the whole line. It is used for one Parse.
type Command struct {
	// Name is the word; of the whole line, the program's.
	Name string
	Help string
	// Value is a pointer to the struct that describes the command.
	Value    any
	Flags    []*Flag
	Commands []*Command
	// Parent is nil for the whole line.
	Parent *Command
}

// Flag is a flag.
type Flag struct {
	Name, Help, Default, Env, Placeholder string
	Enum                                  []string
	Required, Negatable                   bool

	value reflect.Value
	given bool // on the command line
}

// New describes the command line that a struct stands for; root is a pointer to it. Defaults are set by Parse.
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
			child := &Command{Name: named(field), Help: field.Tag.Get("help"), Value: value.Field(i).Addr().Interface(), Parent: c}
			c.Commands = append(c.Commands, child)
			wrong = append(wrong, child.describe(value.Field(i)))
		case embedded || field.Anonymous:
			wrong = append(wrong, c.describe(value.Field(i)))
		default:
			flag := newFlag(field, value.Field(i))
			if !settable(flag.value.Type()) {
				wrong = append(wrong, fmt.Errorf("--%s is a %s, of which there are no flags", flag.Name, flag.value.Type()))
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
		Name: named(field), Default: tag.Get("default"), Env: tag.Get("env"), Placeholder: tag.Get("placeholder"), Required: required, Negatable: negatable, value: value,
	}
	if enum := tag.Get("enum"); enum != "" {
		f.Enum = strings.Split(enum, ",")
	}
	f.Help = strings.NewReplacer("${default}", f.Default, "${enum}", tag.Get("enum")).Replace(tag.Get("help"))
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

// settable reports whether there are flags of a type.
func settable(t reflect.Type) bool {
	switch t.Kind() { //nolint:exhaustive // of the others there are none
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

// all returns the flags of a command and those before it.
func (c *Command) all() []*Flag {
	if c == nil {
		return nil
	}
	return append(c.Parent.all(), c.Flags...)
}

// Flag returns the flag of that name, of the command or one before it, or nil.
func (c *Command) Flag(name string) *Flag {
	all := c.all()
	if i := slices.IndexFunc(all, func(f *Flag) bool { return f.Name == name }); i >= 0 {
		return all[i]
	}
	return nil
}

// Text returns the value of a flag that is a string.
func (f *Flag) Text() string { return f.value.String() }

// isBool reports whether the flag needs no value.
func (f *Flag) isBool() bool { return f.value.Kind() == reflect.Bool }

func (f *Flag) isList() bool { return f.value.Kind() == reflect.Slice }

// duration is a type that is written in its own way.
func duration() reflect.Type { return reflect.TypeFor[time.Duration]() }
