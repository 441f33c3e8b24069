package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"
	"gopkg.in/yaml.v3"
)

// configFlag is the flag that names the file. It is not a key of the file.
const configFlag = "config"

// configFile holds the values of a configuration file, by the name of the flag.
type configFile map[string]any

// useConfig makes the file that --config or TIDEMARK_CONFIG names a source of values. It does
// nothing if there is no file, or if the command has no such flag.
// Commands other than serve use only the settings that they share with it.
func useConfig(app *kong.Kong, ctx *kong.Context) error {
	for _, flag := range ctx.Flags() {
		if flag.Name != configFlag {
			continue
		}
		path, _ := ctx.FlagValue(flag).(string)
		if path == "" {
			return nil
		}
		file, err := readConfig(path, serveKeys(app.Model))
		if err != nil {
			return err
		}
		ctx.AddResolver(file)
	}
	return nil
}

// Validate implements kong.Resolver. readConfig has checked the file.
func (configFile) Validate(*kong.Application) error { return nil }

// Resolve implements kong.Resolver. An environment variable, even an empty one, overrides the file.
func (f configFile) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	for _, name := range flag.Envs {
		if _, set := os.LookupEnv(name); set {
			return nil, nil
		}
	}
	switch value := f[flag.Name].(type) {
	case int, float64: // as text, so that a rate may be a number
		return fmt.Sprint(value), nil
	default: // nil if there is none
		return value, nil
	}
}

// serveKeys returns the keys that are allowed in a file: the names of the flags of serve.
func serveKeys(app *kong.Application) []string {
	var keys []string
	for _, node := range app.Children {
		if node.Name != "serve" {
			continue
		}
		for _, flag := range node.Flags {
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
func readConfig(path string, keys []string) (configFile, error) {
	raw, err := readRegular(path)
	if err != nil {
		return nil, fmt.Errorf("the configuration file cannot be read: %w", err)
	}
	var file configFile
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

// readRegular returns the content of a regular file. A pipe gives its content once and would let a
// reader wait for ever, so readRegular opens it without waiting and returns an error.
func readRegular(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is not a regular file; the server has to reread it", path)
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(f)
}
