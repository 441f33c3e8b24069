package main

import (
	"regexp"
	"strings"
	"unsafe"
)

// databaseURL is a URL of Postgres, DynamoDB or Redis, and whatever follows it: all of that may be a password, if it is written wrongly.
const databaseURL = `(?s)(postgres(?:ql)?:|dynamodb:|rediss?(?:\+[a-z]+)?:)\S.*`

// hideURLs returns a text for people without what stands in URLs of databases.
func hideURLs(text string) string {
	return regexp.MustCompile(databaseURL).ReplaceAllString(text, "${1}…")
}

// hideArguments returns a copy of the arguments of the process, and writes over what stands in URLs of databases in the originals: they are the
// memory that the kernel shows to everybody on the machine (/proc/PID/cmdline, ps). There they can be seen for the moment that it takes until this is
// called.
func hideArguments(args []string) []string {
	found := regexp.MustCompile(databaseURL)
	copied := make([]string, len(args))
	for i, arg := range args {
		copied[i] = strings.Clone(arg)
		at := found.FindStringSubmatchIndex(arg)
		if at == nil {
			continue
		}
		// The runtime makes the strings of os.Args of that memory, without copying it.
		memory := unsafe.Slice(unsafe.StringData(arg), len(arg))
		for j := at[3]; j < at[1]; j++ {
			memory[j] = '*'
		}
	}
	return copied
}
