package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestWrite_draws_each_point_within_the_picture(t *testing.T) {
	for name, ys := range map[string][]float64{
		"flat": {7, 7, 7}, "linear": {10, 12, 30}, "logarithmic": {60, 900, 9_000}, "one": {5},
		"nothing": {0, 0, 0},
	} {
		var points []Point
		for i, y := range ys {
			points = append(points, Point{X: float64(i * i * 100), Y: y, Label: "a <b>"})
		}
		var b strings.Builder
		if err := Write(&b, Chart{Title: "T & t", X: "x", Y: "y", Points: points}); err != nil {
			t.Fatal(err)
		}
		dots := 0
		d := xml.NewDecoder(strings.NewReader(b.String()))
		for {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, b.String())
			}
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "circle" {
				dots++
			}
		}
		if dots != len(ys) || strings.Contains(b.String(), "NaN") {
			t.Errorf("%s: %d points are drawn, want %d\n%s", name, dots, len(ys), b.String())
		}
		axis := vertical(points)
		for _, p := range points {
			x, y := horizontal(points, p.X), axis.place(p.Y)
			if x < left || x > width-right || y < top || y > height-bottom {
				t.Errorf("%s: %v is drawn at %v, %v, outside of the axes", name, p, x, y)
			}
		}
		if n := len(axis.ticks); n < 2 || n > 12 {
			t.Errorf("%s: %d lines, want 2 to 12", name, n)
		}
	}
	for _, points := range [][]Point{nil, {{X: 2, Y: 1}, {X: 1, Y: 1}}} {
		if err := Write(io.Discard, Chart{Points: points}); err == nil {
			t.Errorf("a plot of %v is no error", points)
		}
	}
}
