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

// variablePrefix is the prefix of Tidemark's environment variables.
const variablePrefix = "TIDEMARK_"

// ofOrchestrator matches the variables that Kubernetes sets for a service named tidemark or
// tidemark-something. It sets them in every container.
const ofOrchestrator = `^TIDEMARK(_[A-Z0-9_]+)?_(SERVICE_HOST|SERVICE_PORT(_[A-Z0-9_]+)?|` +
	`PORT(_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`

// checkEnvironment returns a usageError if the environment has an unknown TIDEMARK_ variable.
// The flag of a misspelt variable would keep its default.
// It checks only the commands that variables configure.
func checkEnvironment(command *kong.Context) error {
	switch name, _, _ := strings.Cut(command.Command(), " "); name {
	case "serve", "doctor", "migrate", "import", "copy", "token", "bench":
	default:
		return nil
	}
	known := append(variables(command.Model.Node),
		secretVariable, previousVariable, metricsVariable, outletVariable,
		clusterVariable, traceHeadersVariable)
	slices.Sort(known)
	known = slices.Compact(known)
	foreign := regexp.MustCompile(ofOrchestrator)
	var unknown []error
	for _, variable := range os.Environ() {
		name, _, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, variablePrefix) && !slices.Contains(known, name) &&
			!foreign.MatchString(name) {
			unknown = append(unknown, fmt.Errorf(
				"the environment variable %s is unknown; those of Tidemark are %s",
				name, strings.Join(known, ", ")))
		}
	}
	//rule:caller_does_only_what_they_may.refuse-unknown-variable
	if unknown == nil {
		return nil
	}
	return usageError{errors.Join(unknown...)}
}

// variables returns the environment variables of the flags of a command and of those below it.
// All commands share one environment.
func variables(command *kong.Node) []string {
	var names []string
	for _, flag := range command.Flags {
		names = append(names, flag.Envs...)
	}
	for _, child := range command.Children {
		names = append(names, variables(child)...)
	}
	return names
}
