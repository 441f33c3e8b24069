package test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestOperations_table_has_every_flag compares docs/configuration.md with `serve --help`: the same
// flags, the same defaults, and for each flag its variable.
func TestOperations_table_has_every_flag(t *testing.T) {
	page, err := os.ReadFile("../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	defaults := map[string]string{}
	rows := regexp.MustCompile("(?m)^\\| `--([a-z-]+)` \\|(.*?)\\| .+ \\|$")
	for _, row := range rows.FindAllStringSubmatch(string(page), -1) {
		if _, twice := defaults[row[1]]; twice {
			t.Errorf("the page has --%s twice", row[1])
		}
		defaults[row[1]] = strings.Trim(row[2], "` ")
	}

	help := []byte(serveHelp(t))
	flags := regexp.MustCompile(`(?m)^ {6}--([a-z-]+)\b`).FindAllSubmatchIndex(help, -1)
	if len(flags) < 5 {
		t.Fatalf("serve --help lists %d flags", len(flags))
	}
	known := []string{}
	for i, at := range flags {
		flag := string(help[at[2]:at[3]])
		known = append(known, flag)
		end := len(help)
		if i+1 < len(flags) {
			end = flags[i+1][0]
		}
		text := strings.Join(strings.Fields(string(help[at[0]:end])), " ")
		want := "($TIDEMARK_" + strings.ToUpper(strings.ReplaceAll(flag, "-", "_")) + ")"
		if !strings.Contains(text, want) {
			t.Errorf("--%s does not name its variable %s: %s", flag, want, text)
		}
		told, ok := defaults[flag]
		if !ok {
			t.Errorf("docs/configuration.md has no row for --%s", flag)
			continue
		}
		found := regexp.MustCompile(`Default ([^\s,]+?)[.,]?(?: |$)`).FindStringSubmatch(text)
		if found != nil && found[1] != told {
			t.Errorf("--%s: the default is %q, and the page says %q", flag, found[1], told)
		}
	}
	for flag := range defaults {
		if !slices.Contains(known, flag) {
			t.Errorf("docs/configuration.md has a row for --%s, which serve does not know", flag)
		}
	}
}
