package flags_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tidemark-im/tidemark/cmd/tidemark/internal/flags"
)

type line struct {
	Walk  walk  `cmd:"" help:"Walk somewhere."`
	Group group `cmd:"" help:"Several."`
	Still still `cmd:"" name:"stand-still" help:"Do nothing."`
}

type walk struct {
	common
	Shoes    shoes          `embed:""`
	To       string         `required:"" placeholder:"PLACE" help:"Where to."`
	Steps    int            `default:"10" env:"T_STEPS" help:"How many. Default ${default}."`
	Far      int64          `help:"How far."`
	Speed    float64        `default:"1.5" help:"How fast."`
	Rest     time.Duration  `default:"1m" env:"T_REST" help:"How long to rest."`
	Patience *time.Duration `help:"How long at most."`
	With     []string       `env:"T_WITH" placeholder:"NAME" help:"Who comes along."`
	Stops    []int          `help:"Where to stop."`
	Quiet    bool           `env:"T_QUIET" help:"Without a word."`
	Map      bool           `default:"true" negatable:"" help:"With a map."`
	Pace     pace           `default:"slow" enum:"slow,fast" help:"One of ${enum}."`
	File     string         `env:"T_FILE" help:"A file."`
	Callback func()         `flags:"-"`
	hidden   int
}

type (
	pace   string
	common struct {
		JSON bool `name:"json" help:"Print JSON."`
	}
	shoes struct {
		MaxSizeEU int `name:"max-size" help:"The size."`
		LeftOnly  bool
	}
	still struct{}
	group struct {
		One still `cmd:"" help:"The first."`
		Two still `cmd:"" help:"The second."`

		Shared string `default:"x" help:"Of both."`
	}
)

// Help returns more help.
func (walk) Help() string { return "More about walking.\n\nAnd more." }

func parse(t *testing.T, file flags.File, args ...string) (line, *flags.Command, error) {
	t.Helper()
	var l line
	c, err := flags.New("prog", "A program.", &l)
	if err != nil {
		t.Fatal(err)
	}
	chosen, err := c.Parse(args, func(*flags.Command) (flags.File, error) { return file, nil })
	return l, chosen, err
}

// defaults returns a walk home with all defaults, after change.
func defaults(change func(*walk)) walk {
	w := walk{To: "home", Steps: 10, Speed: 1.5, Rest: time.Minute, Map: true, Pace: "slow"}
	if change != nil {
		change(&w)
	}
	return w
}

func TestParse_line_then_variable_then_file_then_default(t *testing.T) {
	for _, tc := range []struct {
		name string
		env  map[string]string
		file flags.File
		args string
		want func(*walk)
	}{
		{name: "defaults"},
		{
			name: "line",
			args: "--steps 3 --far=-4 --speed 2 --rest 5s --patience 0s --quiet --no-map " +
				"--pace=fast --json --max-size 40 --left-only",
			want: func(w *walk) {
				zero := time.Duration(0)
				w.Steps, w.Far, w.Speed, w.Rest, w.Patience = 3, -4, 2, 5*time.Second, &zero
				w.Quiet, w.Map, w.Pace, w.JSON = true, false, "fast", true
				w.Shoes.MaxSizeEU, w.Shoes.LeftOnly = 40, true
			},
		},
		{
			name: "a number that begins with a hyphen",
			args: "--far -4",
			want: func(w *walk) { w.Far = -4 },
		},
		{
			name: "the last of several",
			args: "--steps 3 --steps 4",
			want: func(w *walk) { w.Steps = 4 },
		},
		{
			name: "lists",
			args: "--with a,b --with c --stops 1 --stops 2,3",
			want: func(w *walk) { w.With, w.Stops = []string{"a", "b", "c"}, []int{1, 2, 3} },
		},
		{
			name: "variables",
			env: map[string]string{
				"T_STEPS": "4", "T_WITH": "a,b", "T_QUIET": "yes", "T_REST": "2s",
			},
			want: func(w *walk) {
				w.Steps, w.With, w.Quiet, w.Rest = 4, []string{"a", "b"}, true, 2*time.Second
			},
		},
		{
			name: "the line over a variable, lists too",
			env:  map[string]string{"T_STEPS": "4", "T_WITH": "a,b"},
			args: "--steps 5 --with c",
			want: func(w *walk) { w.Steps, w.With = 5, []string{"c"} },
		},
		{
			name: "a file",
			file: flags.File{
				"steps": 6, "with": []any{"a", "b"}, "stops": []any{1, 2}, "quiet": true,
				"rest": "3s", "speed": 2.5, "file": "f", "patience": "1s",
			},
			want: func(w *walk) {
				second := time.Second
				w.Steps, w.With, w.Stops, w.Quiet = 6, []string{"a", "b"}, []int{1, 2}, true
				w.Rest, w.Speed, w.File, w.Patience = 3*time.Second, 2.5, "f", &second
			},
		},
		{
			name: "a list of a file in one text",
			file: flags.File{"with": "a,b"},
			want: func(w *walk) { w.With = []string{"a", "b"} },
		},
		{
			name: "a variable over a file",
			env:  map[string]string{"T_STEPS": "4", "T_WITH": "c"},
			file: flags.File{"steps": 6, "with": []any{"a"}},
			want: func(w *walk) { w.Steps, w.With = 4, []string{"c"} },
		},
		{
			name: "an empty variable over a file and a default",
			env:  map[string]string{"T_STEPS": "", "T_FILE": "", "T_QUIET": "", "T_WITH": ""},
			file: flags.File{"steps": 6, "file": "f", "quiet": true, "with": "a"},
			want: func(w *walk) { w.Steps = 0 },
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for name, value := range tc.env {
				t.Setenv(name, value)
			}
			got, chosen, err := parse(t, tc.file,
				append([]string{"walk", "--to", "home"}, strings.Fields(tc.args)...)...)
			if err != nil {
				t.Fatal(err)
			}
			noCallback := cmp.FilterPath(func(p cmp.Path) bool {
				return p.Last().String() == ".Callback"
			}, cmp.Ignore())
			want := defaults(tc.want)
			diff := cmp.Diff(want, got.Walk, cmp.AllowUnexported(walk{}), noCallback)
			if diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if chosen.Name != "walk" || got.Walk.hidden != 0 {
				t.Errorf("the command is %s", chosen.Name)
			}
		})
	}
}

func TestParse_flags_stand_before_and_behind_the_command_that_shares_them(t *testing.T) {
	for _, args := range []string{
		"group --shared y two", "group two --shared y", "group two --shared=y",
	} {
		got, chosen, err := parse(t, nil, strings.Fields(args)...)
		if err != nil || got.Group.Shared != "y" ||
			strings.Join(chosen.Path(), " ") != "group two" {
			t.Errorf("%s: %q, %v, %v", args, got.Group.Shared, chosen, err)
		}
	}
}

func TestParse_refuses_with_a_sentence(t *testing.T) {
	for _, tc := range []struct {
		args string
		file flags.File
		want string
	}{
		{"", nil, `expected one of "walk", "group", "stand-still"`},
		{"group", nil, `expected one of "one", "two"`},
		{"run", nil, `unexpected argument run, expected one of "walk"`},
		{"walk --to x y", nil, "unexpected argument y"},
		{"walk", nil, "missing flags: --to=PLACE"},
		{"walk --to", nil, "--to needs a value: --to=PLACE"},
		{"walk --to --quiet", nil, "--to needs a value"},
		{"walk --from x", nil, "unknown flag --from"},
		{"walk --no-quiet", nil, "unknown flag --no-quiet"},
		{"walk --no-map=true", nil, "unknown flag --no-map"},
		{"stand-still --to x", nil, "unknown flag --to"},
		{"walk -q", nil, "unknown flag -q"},
		{"walk --to x --steps y", nil, `--steps: expected a whole number but got "y"`},
		{"walk --to x --steps 99999999999999999999", nil, "--steps: expected a whole number"},
		{"walk --to x --speed y", nil, `--speed: expected a number but got "y"`},
		{"walk --to x --quiet=maybe", nil, `--quiet: expected true or false but got "maybe"`},
		{"walk --to x --rest 10", nil, `--rest: expected a time such as 10s or 1m30s but got "10"`},
		{"walk --to x --pace dead", nil, `--pace must be one of slow, fast but got "dead"`},
		{"walk --to x --stops 1,b", nil, `--stops: expected a whole number but got "b"`},
		{"walk --to x", flags.File{"quiet": 12}, "quiet: 12 is no true or false"},
		{"walk --to x", flags.File{"file": 12}, "file: 12 is no text"},
		{"walk --to x", flags.File{"steps": true}, "steps: true is no number"},
		{"walk --to x", flags.File{"rest": 5}, "rest: 5 is no time"},
		{"walk --to x", flags.File{"steps": []any{1}}, "is no number"},
		{"walk --to x", flags.File{"with": []any{[]any{}}}, "with: [] is no text"},
		{"walk --to x", flags.File{"file": map[string]any{}}, "is no text"},
		{"walk --to x", flags.File{"pace": "dead"}, "--pace must be one of"},
	} {
		_, _, err := parse(t, tc.file, strings.Fields(tc.args)...)
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%q, %v: %v, want %q", tc.args, tc.file, err, tc.want)
		}
	}
}

func TestNew_refuses_what_can_be_no_flag(t *testing.T) {
	var of struct {
		Good string
		Bad  map[string]string
		Deep [][]string
	}
	_, err := flags.New("prog", "", &of)
	if err == nil || !strings.Contains(err.Error(), "--bad") ||
		!strings.Contains(err.Error(), "--deep") || strings.Contains(err.Error(), "--good") {
		t.Errorf("got %v, want an error about bad and deep", err)
	}
	if _, err := flags.New("prog", "", of); err == nil {
		t.Error("a struct that cannot be filled was taken")
	}
}

func help(t *testing.T, args ...string) string {
	t.Helper()
	_, _, err := parse(t, nil, args...)
	var asked flags.ErrHelp
	if !errors.As(err, &asked) {
		t.Fatalf("%v: %v, want help", args, err)
	}
	var b strings.Builder
	if err := asked.Command.WriteHelp(&b); err != nil {
		t.Fatal(err)
	}
	for _, text := range strings.Split(b.String(), "\n") {
		if len(text) > 80 {
			t.Errorf("%v: a line of %d bytes: %s", args, len(text), text)
		}
	}
	return b.String()
}

func TestHelp_of_a_command(t *testing.T) {
	got := help(t, "walk", "--steps", "3", "--help", "nonsense")
	for _, want := range []string{
		"Usage: prog walk --to=PLACE [flags]\n\nWalk somewhere.\n\n" +
			"More about walking.\n\nAnd more.\n\n" +
			"Flags:\n  -h, --help                       Show this help.\n\n      --json",
		"\n      --to=PLACE                   Where to.\n",
		"\n      --steps=10                   How many. Default 10 ($T_STEPS).\n",
		"\n      --far=N                      How far.\n",
		"\n      --with=NAME,...              Who comes along ($T_WITH).\n",
		"\n      --[no-]map                   With a map.\n",
		"\n      --pace=\"slow\"                One of slow,fast.\n",
		"\n      --patience=TIME ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the help lacks %q:\n%s", want, got)
		}
	}
	if strings.Contains(got, "callback") || strings.Contains(got, "hidden") {
		t.Errorf("the help names what is no flag:\n%s", got)
	}
}

func TestHelp_of_the_line_lists_what_does_something(t *testing.T) {
	want := `Usage: prog <command>

A program.

Flags:
  -h, --help                       Show this help.

Commands:
  walk --to=PLACE [flags]
    Walk somewhere.

  group one [flags]
    The first.

  group two [flags]
    The second.

  stand-still
    Do nothing.

Run "prog <command> --help" for more about a command.
`
	if diff := cmp.Diff(want, help(t, "-h")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
