package main

import (
	"regexp"
	"strings"
	"unsafe"
)

// databaseURL matches a URL of Postgres, DynamoDB, Redis or Kafka, and everything behind it.
// If the URL is malformed, all of that may belong to a password.
const databaseURL = `(?s)(postgres(?:ql)?:|dynamodb:|rediss?(?:\+[a-z]+)?:|kafkas?:)\S.*`

// hideURLs returns a text with the contents of database URLs replaced by "…".
func hideURLs(text string) string {
	return regexp.MustCompile(databaseURL).ReplaceAllString(text, "${1}…")
}

// hideArguments returns a copy of the process's arguments, and overwrites database URLs in the
// originals. The kernel shows that memory to all users of the machine (/proc/PID/cmdline, ps).
// They can see it from the start of the process until this call.
func hideArguments(args []string) []string {
	found := regexp.MustCompile(databaseURL)
	copied := make([]string, len(args))
	for i, arg := range args {
		copied[i] = strings.Clone(arg)
		at := found.FindStringSubmatchIndex(arg)
		if at == nil {
			continue
		}
		// The strings of os.Args are that memory: the runtime does not copy it.
		memory := unsafe.Slice(unsafe.StringData(arg), len(arg))
		for j := at[3]; j < at[1]; j++ {
			memory[j] = '*'
		}
	}
	return copied
}
