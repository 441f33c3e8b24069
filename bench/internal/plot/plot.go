// Package plot draws a curve as a small SVG picture.
package plot

import (
	"cmp"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/tidemark-im/tidemark/bench/internal/measure"
)

// Chart is what a picture shows. X is drawn by the logarithm of 1+X, so that it may be 0. Y is
// drawn from 0 on, or by its logarithm if its values differ by more than logAbove.
type Chart struct {
	Title, Note string
	X, Y        string // the names of the axes
	Points      []Point
}

// Point is a point of the curve, in ascending order of X. Label is what the axis says there.
type Point struct {
	X, Y  float64
	Label string
}

const (
	width, height            = 640, 340
	left, right, top, bottom = 64, 24, 48, 56
	logAbove                 = 20
)

// head has colours that are readable on white and on black. A picture cannot know the page's.
const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img">
<title>%s</title>
<style>text{font:12px system-ui,sans-serif;fill:#757575}.b{font-weight:600;font-size:14px}
.m{text-anchor:middle}.e{text-anchor:end}.g{stroke:#757575;stroke-opacity:.3}
.l{fill:none;stroke:#2f81f7;stroke-width:2}.d{fill:#2f81f7}</style>
`

// Write writes the picture. It fails without points, and if X does not ascend.
func Write(w io.Writer, c Chart) error {
	ascending := func(a, b Point) int { return cmp.Compare(a.X, b.X) }
	if len(c.Points) == 0 || !slices.IsSortedFunc(c.Points, ascending) {
		return errors.New("a plot needs points in ascending order")
	}
	var b strings.Builder
	title := escape(c.Title)
	fmt.Fprintf(&b, head, width, height, title)
	text := func(class string, x, y float64, s string) {
		fmt.Fprintf(&b, `<text class="%s" x="%.0f" y="%.0f">%s</text>`+"\n", class, x, y, escape(s))
	}
	text("b", left, 20, c.Title)
	text("", left, 37, c.Note)
	text("m", (left+width-right)/2, height-8, c.X)
	ys := vertical(c.Points)
	for _, tick := range ys.ticks {
		y := ys.place(tick)
		fmt.Fprintf(&b, `<path class="g" d="M%d %.1fH%d"/>`+"\n", left, y, width-right)
		text("e", left-6, y+4, measure.Amount(tick))
	}
	fmt.Fprintf(&b, `<text class="m" transform="translate(14 %d)rotate(-90)">%s</text>`+"\n",
		(top+height-bottom)/2, escape(c.Y))
	var line, dots strings.Builder
	free := math.Inf(-1) // where the next label of the axis may begin
	for i, p := range c.Points {
		x, y := horizontal(c.Points, p.X), ys.place(p.Y)
		fmt.Fprintf(&line, "%c%.1f %.1f", "ML"[min(i, 1)], x, y)
		fmt.Fprintf(&dots, `<circle class="d" cx="%.1f" cy="%.1f" r="4"><title>%s: %s</title>`+
			"</circle>\n", x, y, escape(p.Label), measure.Amount(p.Y))
		if half := 3.5 * float64(len([]rune(p.Label))); x-half > free {
			text("m", x, height-bottom+18, p.Label)
			free = x + half
		}
	}
	fmt.Fprintf(&b, `<path class="l" d="%s"/>`+"\n%s</svg>\n", line.String(), dots.String())
	_, err := io.WriteString(w, b.String())
	return err
}

// horizontal returns where x is drawn.
func horizontal(points []Point, x float64) float64 {
	from, to := math.Log10(1+points[0].X), math.Log10(1+points[len(points)-1].X)
	const inset = 20
	part := 0.5
	if to > from {
		part = (math.Log10(1+x) - from) / (to - from)
	}
	return left + inset + part*(width-left-right-2*inset)
}

// scale is the vertical axis. Its ends are those of ticks.
type scale struct {
	ticks []float64
	log   bool
}

func vertical(points []Point) scale {
	least, most := math.Inf(1), 0.0
	for _, p := range points {
		least, most = min(least, p.Y), max(most, p.Y)
	}
	var s scale
	if least > 0 && most/least > logAbove {
		s.log = true
		for at := math.Pow(10, math.Floor(math.Log10(least))); ; at *= 10 {
			s.ticks = append(s.ticks, at)
			if at >= most {
				return s
			}
		}
	}
	step := math.Pow(10, math.Floor(math.Log10(max(most, 1e-9))))
	for _, part := range []float64{2, 5} {
		if most/step < part {
			step /= 10 / part
			break
		}
	}
	for at := 0.0; ; at += step {
		s.ticks = append(s.ticks, at)
		if at >= most && at > 0 {
			return s
		}
	}
}

// place returns where y is drawn.
func (s scale) place(y float64) float64 {
	from, to := s.ticks[0], s.ticks[len(s.ticks)-1]
	if s.log {
		y, from, to = math.Log10(y), math.Log10(from), math.Log10(to)
	}
	return height - bottom - (y-from)/(to-from)*(height-top-bottom)
}

// escape escapes text. The five names of HTML's escapes are also those of XML.
func escape(s string) string { return html.EscapeString(s) }
