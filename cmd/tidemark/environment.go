package main

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// variablePrefix is how the names of Tidemark's environment variables begin.
const variablePrefix = "TIDEMARK_"

// ofOrchestrator is the variables that Kubernetes sets in every container for a service that is called tidemark or tidemark-something.
const ofOrchestrator = `^TIDEMARK(_[A-Z0-9_]+)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`

// checkEnvironment refuses variables that look like ours and are none, for the commands that are configured by them: a misspelt one would
// silently be a default.
func checkEnvironment(command *kong.Context) error {
	switch name, _, _ := strings.Cut(command.Command(), " "); name {
	case "serve", "migrate", "token", "bench":
	default:
		return nil
	}
	known := append(variables(command.Model.Node), secretVariable)
	slices.Sort(known)
	known = slices.Compact(known)
	foreign := regexp.MustCompile(ofOrchestrator)
	var unknown []error
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, variablePrefix) && !slices.Contains(known, name) && !foreign.MatchString(name) {
			unknown = append(unknown, fmt.Errorf("the environment variable %s is unknown; those of Tidemark are %s", name, strings.Join(known, ", ")))
		}
	}
	if unknown == nil {
		return nil
	}
	return usageError{errors.Join(unknown...)}
}

// variables returns the environment variables of all flags, of all commands: one environment is for all of them.
func variables(node *kong.Node) []string {
	var names []string
	for _, flag := range node.Flags {
		names = append(names, flag.Envs...)
	}
	for _, child := range node.Children {
		names = append(names, variables(child)...)
	}
	return names
}
