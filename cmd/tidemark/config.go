package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"gopkg.in/yaml.v3"
)

// configFile is the file of --config as a source of flags. Its keys are the names of the flags of serve.
type configFile map[string]any

// configFlag is the flag that names the file; it is no key of the file.
const configFlag = "config"

// BeforeResolve reads the file of --config or TIDEMARK_CONFIG, before flags without a value get theirs.
func (serveCommand) BeforeResolve(app *kong.Kong, ctx *kong.Context) error {
	return resolveFile(app, ctx)
}

// BeforeResolve does the same as for serve: migrate reads the same file and takes only the store from it.
func (migrateCommand) BeforeResolve(app *kong.Kong, ctx *kong.Context) error {
	return resolveFile(app, ctx)
}

func resolveFile(app *kong.Kong, ctx *kong.Context) error {
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
		return nil
	}
	return nil
}

// serveKeys returns the keys that a file may have.
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

// readConfig reads a file. A key that is none of keys is an error, since a misspelt key would silently be a default.
func readConfig(path string, keys []string) (configFile, error) {
	raw, err := os.ReadFile(path)
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
			problems = append(problems, fmt.Errorf("%s has a jwt-secret; a secret is given by the environment variable %s only", path, secretVariable))
		case !slices.Contains(keys, key):
			problems = append(problems, fmt.Errorf("%s has the key %q, which is unknown; the keys are %s", path, key, strings.Join(keys, ", ")))
		case value == nil:
			problems = append(problems, fmt.Errorf("%s has the key %q without a value", path, key))
		}
	}
	return file, errors.Join(problems...)
}

// Validate implements kong.Resolver. readConfig has validated already.
func (f configFile) Validate(*kong.Application) error { return nil }

// Resolve implements kong.Resolver. An environment variable, even an empty one, wins over the file.
func (f configFile) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	for _, name := range flag.Envs {
		if _, set := os.LookupEnv(name); set {
			return nil, nil
		}
	}
	value, ok := f[flag.Name]
	if !ok {
		return nil, nil
	}
	return value, nil
}
