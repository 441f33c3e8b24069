package main

import (
	"fmt"
	"maps"
	"slices"

	"github.com/alecthomas/kong"
)

// describe sets the help of commands and flags whose tags have none. It returns an error if one
// has no help, or if the table names one that does not exist.
func describe(k *kong.Kong) error {
	left := helpTexts()
	if err := describeNode(k.Model.Node, "", left); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		return fmt.Errorf("there is help for %q, which does not exist", name)
	}
	return nil
}

// describeNode sets the help of a command's flags and of the commands below it. path has the words
// of the command. It removes from left what it has used.
func describeNode(node *kong.Node, path string, left map[string]string) error {
	describeOne := func(name string, help *string) error {
		if text, ok := left[name]; ok {
			*help = text
			delete(left, name)
		}
		if *help == "" {
			return fmt.Errorf("there is no help for %q", name)
		}
		return nil
	}
	for _, flag := range node.Flags {
		if err := describeOne(path+"--"+flag.Name, &flag.Help); err != nil {
			return err
		}
	}
	for _, child := range node.Children {
		if err := describeOne(path+child.Name, &child.Help); err != nil {
			return err
		}
		if err := describeNode(child, path+child.Name+" ", left); err != nil {
			return err
		}
	}
	return nil
}

// helpTexts returns the help of commands and flags that is too long for a tag.
func helpTexts() map[string]string {
	return map[string]string{
		"serve":   "Run the server.",
		"migrate": "Bring a store's schema up or down, or show its version.",
		"backup":  "Copy the store to a file while the server runs.",
		"health":  "Check whether the server on this machine is ready.",
		"token":   "Print a bearer token for a user, signed with TIDEMARK_JWT_SECRET.",
		"api-key": "Print a new API key for a backend, and on standard error its line for " +
			"--api-keys-file.",
		"bench":   "Put a running server under load, and check what arrives.",
		"version": "Print the version.",
		"serve --listen": "Address to listen on; port 0 chooses a free one, which is logged. " +
			"Default ${default}.",
		"serve --store": "Where messages are kept: sqlite:PATH (sqlite: is ./tidemark.db), " +
			"postgres://USER:PASSWORD@HOST:PORT/DATABASE, dynamodb://REGION/PREFIX, or memory: " +
			"for a trial.",
		"serve --dev": "Development: authentication and rate limits are off, so any user name " +
			"works (Bearer dev:NAME). Loopback addresses only.",
		"serve --migrate": "First bring the schema of Postgres or DynamoDB up to date. Without " +
			"it, an older schema is refused. SQLite is always brought up to date.",
		"serve --allow-origin": "Origin of web pages that may call, such as " +
			"https://app.example.com, or * for all; repeatable. Pages of the server's own host " +
			"always may.",
		"serve --config": "YAML file whose keys are the names of these flags. Flags and " +
			"variables override it.",
		"serve --redis": "Redis of a cluster: redis://[USER:PASSWORD@]HOST:PORT[/DB], " +
			"redis+sentinel://HOST:PORT,…/MASTER, or redis+cluster://HOST:PORT,…; with TLS " +
			"rediss://, rediss+sentinel://, rediss+cluster://. The nodes share a store, Postgres " +
			"or DynamoDB. Without it, this node is alone.",
		"serve --node": "Name of this node, unique in the cluster. Default: the host name and " +
			"random letters.",
		"serve --jwks-url": "URL of the keys of the tokens' issuer (RS256, ES256, EdDSA): https, " +
			"or http on a loopback host.",
		"serve --jwt-issuer":   "The iss that tokens must have. Without it, any.",
		"serve --jwt-audience": "A value that the aud of tokens must contain. Without it, any.",
		"serve --api-keys-file": "File with the hashes of backends' API keys, one line per key, " +
			"as api-key prints it. It is read again when it changes.",
		"serve --log-format": "Format of the logs on standard error: text or json. Default " +
			"${default}.",
		"serve --log-level": "Lowest level that is logged: debug, info, warn or error. debug " +
			"logs each request. Default ${default}.",
		"serve --debug-listen": "Loopback address that serves /debug/pprof/ and /metrics.",
		"serve --public-metrics": "Also serve /metrics on --listen, without authentication. " +
			"--dev implies it.",
		"serve --max-connections": "Greatest number of connections; further ones get 503. 0: " +
			"what the open-file limit allows, at most 100,000.",
		"serve --max-connections-per-address": "Greatest number of connections per client " +
			"address; further ones are closed. 0: no limit, which is right behind a proxy.",
		"serve --drain-delay": "How long /readyz is red before an orderly stop begins, so that " +
			"load balancers notice. Default 1s, with --dev 0s.",
		"serve --drain-spread": "Longest time in which an orderly stop sends streams to other " +
			"nodes. Default 10s, but at most half of what the deadline leaves after the delay.",
		"serve --drain-deadline": "Longest time for an orderly stop in all. Default 15s.",
		"migrate up":             "Run every migration that the store lacks.",
		"migrate down": "Revert the latest migration. It destroys what only the newer schema " +
			"contains.",
		"migrate status": "Show the schema version of the store, and the one that this program " +
			"needs.",
		"migrate --store":  "Where messages are kept: sqlite:PATH, postgres://… or dynamodb://…",
		"migrate --config": "The YAML file of serve; only its store is used.",
		"backup --to": "File to write. It must not exist. Until it is complete, its name is " +
			"FILE.unfinished-…",
		"backup --store":  "What to copy: sqlite:PATH.",
		"backup --config": "The YAML file of serve; only its store is used.",
		"health --listen": "Address of the server; without a HOST, the loopback interface.",
		"health --config": "The YAML file of serve; only its listen is used.",
		"bench p2p":       "Pairs of users: stored, confirmed, delivered, acknowledged, ticked.",
		"bench group":     "One chat with all members online: the fan-out.",
		"bench idle":      "Connections that do nothing: the memory of each, on a new server.",
		"bench catchup":   "Users who were offline come back.",
		"bench storm": "Stop and start the server under load: how long it takes, and how clients " +
			"come back.",
	}
}
