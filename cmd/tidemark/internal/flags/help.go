package flags

import (
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
)

const (
	// width is the greatest width of the help.
	width = 80
	// column is where the description of a flag begins.
	column = 35
)

// WriteHelp writes the help of the command.
// It includes the text of the Value's method Help() string, if there is one.
func (c *Command) WriteHelp(w io.Writer) error {
	var b strings.Builder
	program := c
	for program.Parent != nil {
		program = program.Parent
	}
	fmt.Fprintf(&b, "Usage: %s\n\n", c.usage(program.Name))
	paragraph(&b, "", c.Help)
	if more, ok := c.Value.(interface{ Help() string }); ok {
		b.WriteByte('\n')
		paragraph(&b, "", more.Help())
	}
	b.WriteString("\nFlags:\n")
	row(&b, "  -h, --help", "Show this help.")
	for i, f := range c.all() {
		if i == 0 {
			b.WriteByte('\n')
		}
		row(&b, "      "+f.left(), f.right())
	}
	if len(c.Commands) > 0 {
		b.WriteString("\nCommands:\n")
		c.list(&b)
		fmt.Fprintf(&b, "Run \"%s <command> --help\" for more about a command.\n", program.Name)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// usage returns the words of the command, and the flags that it requires.
func (c *Command) usage(program string) string {
	words := append([]string{program}, c.Path()...)
	for _, f := range c.all() {
		if f.Required {
			words = append(words, "--"+f.Name+"="+f.placeholder())
		}
	}
	switch {
	case len(c.Commands) > 0:
		words = append(words, "<command>")
	case len(c.all()) > 0:
		words = append(words, "[flags]")
	}
	return strings.TrimSpace(strings.Join(words, " "))
}

// list writes the commands below c that can be run.
func (c *Command) list(b *strings.Builder) {
	for _, child := range c.Commands {
		if len(child.Commands) > 0 {
			child.list(b)
			continue
		}
		fmt.Fprintf(b, "  %s\n", child.usage(""))
		paragraph(b, "    ", child.Help)
		b.WriteByte('\n')
	}
}

func (f *Flag) left() string {
	switch {
	case f.isBool() && f.Negatable:
		return "--[no-]" + f.Name
	case f.isBool():
		return "--" + f.Name
	}
	return "--" + f.Name + "=" + f.placeholder()
}

// right returns the help of the flag, with its variable before the last full stop.
func (f *Flag) right() string {
	if f.Env == "" {
		return f.Help
	}
	return strings.TrimSuffix(f.Help, ".") + " ($" + f.Env + ")."
}

// placeholder returns the name of the value in the help: its placeholder, default or type.
func (f *Flag) placeholder() string {
	t := f.value.Type()
	if f.isList() || t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	name := f.Placeholder
	switch {
	case name != "":
	case f.Default != "" && t.Kind() == reflect.String:
		name = strconv.Quote(f.Default)
	case f.Default != "":
		name = f.Default
	case t == duration():
		name = "TIME"
	case t.Kind() == reflect.String:
		name = "STRING"
	default:
		name = "N"
	}
	if f.isList() {
		name += ",..."
	}
	return name
}

// row writes two columns. If the first one is too wide, it has its own line.
func row(b *strings.Builder, left, right string) {
	indent := strings.Repeat(" ", column)
	lines := wrap(right, width-column)
	if len(left) > column-2 {
		b.WriteString(left + "\n")
		left = ""
	}
	for _, line := range lines {
		b.WriteString(left + indent[len(left):] + line + "\n")
		left = ""
	}
}

// paragraph writes a text in lines, and keeps its blank lines.
func paragraph(b *strings.Builder, indent, text string) {
	for i, part := range strings.Split(text, "\n\n") {
		if i > 0 {
			b.WriteByte('\n')
		}
		for _, line := range wrap(part, width-len(indent)) {
			b.WriteString(indent + line + "\n")
		}
	}
}

// wrap breaks a text between words into lines of at most that many bytes.
// A longer word has its own line.
func wrap(text string, most int) []string {
	var lines []string
	line := ""
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case len(line)+1+len(word) > most:
			lines = append(lines, line)
			line = word
		default:
			line += " " + word
		}
	}
	return append(lines, line)
}
