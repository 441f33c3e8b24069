package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/tidemark-im/tidemark/cmd/tidemark/internal/flags"
)

// configFlag is the flag that names the file. It is not a key of the file.
const configFlag = "config"

// fileOf returns the values of the file that --config or TIDEMARK_CONFIG names.
// It returns nil if there is no file, or if the command has no such flag.
// Commands other than serve use only the settings that they share with it.
func fileOf(command *flags.Command) (flags.File, error) {
	flag := command.Flag(configFlag)
	if flag == nil || flag.Text() == "" {
		return nil, nil
	}
	return readConfig(flag.Text(), serveKeys(root(command)))
}

// root returns the topmost command, which stands for the whole command line.
func root(command *flags.Command) *flags.Command {
	for command.Parent != nil {
		command = command.Parent
	}
	return command
}

// serveKeys returns the keys that are allowed in a file: the names of the flags of serve.
func serveKeys(line *flags.Command) []string {
	var keys []string
	for _, command := range line.Commands {
		if command.Name != "serve" {
			continue
		}
		for _, flag := range command.Flags {
			if flag.Name != configFlag {
				keys = append(keys, flag.Name)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// readConfig returns the values of a file.
// A key that is not in keys is an error, because the flag of a misspelt key would keep its default.
func readConfig(path string, keys []string) (flags.File, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the configuration file cannot be read: %w", err)
	}
	var file flags.File
	if err := yaml.Unmarshal(raw, &file); err != nil {
		return nil, fmt.Errorf("%s is not a YAML map of flags to values: %w", path, err)
	}
	var problems []error
	for key, value := range file {
		switch {
		case key == "jwt-secret":
			problems = append(problems, fmt.Errorf("%s has a jwt-secret; "+
				"set the secret by the environment variable %s only", path, secretVariable))
		case !slices.Contains(keys, key):
			problems = append(problems, fmt.Errorf(
				"%s has the key %q, which is unknown; the keys are %s",
				path, key, strings.Join(keys, ", ")))
		case value == nil:
			problems = append(problems, fmt.Errorf("%s has the key %q without a value", path, key))
		}
	}
	return file, errors.Join(problems...)
}
