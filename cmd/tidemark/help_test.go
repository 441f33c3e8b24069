package main

import (
	"io"
	"strings"
	"testing"
)

func TestHelp_every_command_and_flag_has_one(t *testing.T) {
	var cli commands
	parser, err := newParser(&cli, streams{io.Discard, io.Discard}, func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"stray --flag": "No flag.", "stray": "No command."} {
		left := helpTexts()
		left[name] = text
		if err := describeNode(parser.Model.Node, "", left); err != nil {
			t.Fatal(err)
		}
		if left[name] == "" || len(left) != 1 {
			t.Errorf("with a text for %q: %d texts were not used, want 1", name, len(left))
		}
	}
	parser.Model.Children[0].Help = ""
	err = describeNode(parser.Model.Node, "", map[string]string{})
	if err == nil || !strings.Contains(err.Error(), parser.Model.Children[0].Name) {
		t.Errorf("a command without help: %v, want an error that names it", err)
	}
}
