package page

import (
	"bytes"
	"fmt"
	"html/template"
	"image/color"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/percore/percore/cmd/percore/internal/bench"
	"github.com/percore/percore/cmd/percore/internal/bench/report"
	"github.com/percore/percore/cmd/percore/internal/bench/stats"
)

// The charts are drawn into the page as SVG, so a browser shows them without a script or a network.

// The colors of the page. The verdicts also differ in shape, for people who can't tell the colors
// apart.
var (
	ink  = color.RGBA{R: 0x24, G: 0x29, B: 0x2f, A: 0xff}
	pale = color.RGBA{R: 0xd8, G: 0xde, B: 0xe4, A: 0xff}

	verdictStyle = map[bench.Verdict]draw.GlyphStyle{
		bench.Better:    {Color: color.RGBA{R: 0x1a, G: 0x7f, B: 0x37, A: 0xff}, Radius: 4, Shape: draw.CircleGlyph{}},
		bench.Worse:     {Color: color.RGBA{R: 0xcf, G: 0x22, B: 0x2e, A: 0xff}, Radius: 4.5, Shape: draw.PyramidGlyph{}},
		bench.Undecided: {Color: color.RGBA{R: 0x8c, G: 0x95, B: 0x9f, A: 0xff}, Radius: 3.5, Shape: draw.RingGlyph{}},
	}

	// armColors are the colors of Okabe and Ito, which most people can tell apart.
	armColors = []color.Color{
		color.RGBA{R: 0x00, G: 0x72, B: 0xb2, A: 0xff},
		color.RGBA{R: 0xe6, G: 0x9f, B: 0x00, A: 0xff},
		color.RGBA{R: 0x00, G: 0x9e, B: 0x73, A: 0xff},
		color.RGBA{R: 0xcc, G: 0x79, B: 0xa7, A: 0xff},
		color.RGBA{R: 0x56, G: 0xb4, B: 0xe9, A: 0xff},
	}
)

// armColor is the color of arm number i in every chart.
func armColor(i int) color.Color { return armColors[i%len(armColors)] }

// The sizes of charts, in points.
const (
	chartWidth   vg.Length = 720
	rowHeight    vg.Length = 20
	frameHeight  vg.Length = 54 // title and axis of a chart of rows
	latencyWidth vg.Length = 520
	latencyTall  vg.Length = 240
)

// newPlot returns a plot in the page's style.
func newPlot(title string) *plot.Plot {
	p := plot.New()
	p.Title.Text = title
	p.Title.Padding = 6
	p.BackgroundColor = color.Transparent
	for _, f := range []*font.Font{
		&p.Title.TextStyle.Font, &p.X.Label.TextStyle.Font, &p.Y.Label.TextStyle.Font,
		&p.X.Tick.Label.Font, &p.Y.Tick.Label.Font, &p.Legend.TextStyle.Font,
	} {
		f.Variant, f.Size = "Sans", 10
	}
	p.Title.TextStyle.Font.Size = 12
	for _, c := range []*color.Color{&p.Title.TextStyle.Color, &p.X.Tick.Label.Color, &p.Y.Tick.Label.Color} {
		*c = ink
	}
	for _, a := range []*plot.Axis{&p.X, &p.Y} {
		a.Color, a.Tick.Color = pale, pale
	}
	return p
}

// addGrid adds grid lines.
func addGrid(p *plot.Plot, vertical, horizontal bool) {
	g := plotter.NewGrid()
	g.Vertical.Color, g.Horizontal.Color = pale, pale
	if !vertical {
		g.Vertical.Color = nil
	}
	if !horizontal {
		g.Horizontal.Color = nil
	}
	p.Add(g)
}

// svg draws p as an element of a page. The text alt describes it in words.
func svg(p *plot.Plot, width, height vg.Length, alt string) (template.HTML, error) {
	c := vgsvg.New(width, height)
	p.Draw(draw.New(c))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return "", err
	}
	s := b.String()
	i := strings.Index(s, "<svg")
	j := strings.Index(s, "viewBox")
	if i < 0 || j < i {
		return "", fmt.Errorf("draw %q: no SVG came out", alt)
	}
	// The prolog is not allowed inside HTML, and the page decides the size. The fonts fall back to
	// others with the same metrics.
	s = fmt.Sprintf(`<svg role="img" aria-label="%s" style="max-width:%.0fpt" `, template.HTMLEscapeString(alt), width.Points()) + s[j:]
	s = strings.ReplaceAll(s, "font-family:Liberation Sans;", "font-family:Liberation Sans,Arial,Helvetica,sans-serif;")
	return template.HTML(s), nil // all text in it came through the SVG writer, which escapes it
}

// forest draws one metric's ratios over all scenarios, with their intervals. It
// returns "" when no scenario has the metric.
func forest(rep *bench.Report, between report.Pair, m bench.Metric) (template.HTML, error) {
	var (
		names  []string
		points []bench.Comparison
	)
	for i := range rep.Results {
		res := &rep.Results[i]
		if !slices.Contains(res.Headline, m.Name) {
			continue
		}
		if c := report.Compare(rep, res, between, m); c.Ratio.Pairs > 0 && c.Ratio.Lo > 0 {
			names, points = append(names, res.Scenario), append(points, c)
		}
	}
	if len(points) == 0 {
		return "", nil
	}
	slices.Reverse(names) // the first scenario goes on top
	slices.Reverse(points)

	better := "left is better"
	if m.HigherIsBetter {
		better = "right is better"
	}
	title := fmt.Sprintf("%s: %v (%s)", m.Label, between, better)
	p := newPlot(title)
	addGrid(p, true, true)
	if err := addRatios(p, points); err != nil {
		return "", err
	}
	p.NominalY(names...)
	p.Y.Color, p.Y.Tick.Color = pale, pale
	p.Y.Min, p.Y.Max = -0.7, float64(len(points))-0.3
	return svg(p, chartWidth, frameHeight+rowHeight*vg.Length(len(points)), title)
}

// addRatios draws points with their intervals on a logarithmic scale that includes 1. Point i is at
// height i.
func addRatios(p *plot.Plot, points []bench.Comparison) error {
	lo, hi := 0.95, 1.05
	for i, c := range points {
		lo, hi = min(lo, c.Ratio.Lo), max(hi, c.Ratio.Hi)
		y := float64(i)
		style := verdictStyle[c.Verdict]
		bar, err := plotter.NewLine(plotter.XYs{{X: c.Ratio.Lo, Y: y}, {X: c.Ratio.Hi, Y: y}})
		if err != nil {
			return err
		}
		bar.Color, bar.Width = style.Color, 1.5
		dot, err := plotter.NewScatter(plotter.XYs{{X: c.Ratio.Median, Y: y}})
		if err != nil {
			return err
		}
		dot.GlyphStyle = style
		p.Add(bar, dot)
	}
	one, err := plotter.NewLine(plotter.XYs{{X: 1, Y: -1}, {X: 1, Y: float64(len(points))}})
	if err != nil {
		return err
	}
	one.Color = ink
	p.Add(one)
	p.X.Scale = plot.LogScale{}
	p.X.Min, p.X.Max = lo*0.98, hi*1.02
	p.X.Tick.Marker = plot.TickerFunc(ratioTicks)
	return nil
}

// ratioTicks marks round ratios between lo and hi, and no more than there is room for.
func ratioTicks(lo, hi float64) []plot.Tick {
	steps := []float64{1}
	switch span := hi / lo; {
	case span > 30:
		for e := -4.0; e <= 4; e++ {
			steps = append(steps, math.Pow(10, e))
		}
	case span > 3:
		steps = append(steps, 0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 1.5, 2, 3, 5, 10, 20)
	case span > 1.4:
		steps = append(steps, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.1, 1.25, 1.5, 1.75, 2, 2.5)
	default:
		steps = append(steps, 0.75, 0.8, 0.85, 0.9, 0.95, 1.05, 1.1, 1.15, 1.2, 1.25)
	}
	slices.Sort(steps)
	var ticks []plot.Tick
	for _, s := range slices.Compact(steps) {
		if s >= lo && s <= hi {
			ticks = append(ticks, plot.Tick{Value: s, Label: fmt.Sprintf("%g", s)})
		}
	}
	return ticks
}

// againstProcessors draws one metric's medians against the number of processors that the server
// has, a line per arm. It returns "" unless there are at least two such numbers.
func againstProcessors(rep *bench.Report, app string, m bench.Metric) (template.HTML, error) {
	title := fmt.Sprintf("%s against processors, %s", m.Label, app)
	p := newPlot(title)
	addGrid(p, true, true)
	var steps []plot.Tick
	drawn := false
	for a, arm := range rep.Arms {
		var curve plotter.XYs
		for i := range rep.Results {
			res := &rep.Results[i]
			v := stats.Median(res.Values(arm.Name, m.Name))
			if res.Procs == 0 || !strings.HasPrefix(res.Scenario, "scale/"+app+"/") || math.IsNaN(v) {
				continue
			}
			curve = append(curve, plotter.XY{X: float64(res.Procs), Y: v})
			steps = append(steps, plot.Tick{Value: float64(res.Procs), Label: strconv.Itoa(res.Procs)})
		}
		if len(curve) < 2 {
			continue
		}
		line, points, err := plotter.NewLinePoints(curve)
		if err != nil {
			return "", err
		}
		line.Color, line.Width, points.Color = armColor(a), 1.8, armColor(a)
		p.Add(line, points)
		p.Legend.Add(arm.Name, line)
		drawn = true
	}
	if !drawn {
		return "", nil
	}
	p.Legend.Top, p.Legend.Left = true, true
	p.X.Scale = plot.LogScale{}
	p.X.Tick.Marker = plot.ConstantTicks(steps)
	p.Y.Min = 0
	p.Y.Tick.Marker = plot.TickerFunc(func(lo, hi float64) []plot.Tick { return unitTicks(lo, hi, m.Unit) })
	return svg(p, latencyWidth, latencyTall, title)
}

// unitTicks marks a linear axis, with labels in the metric's unit.
func unitTicks(lo, hi float64, u bench.Unit) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(lo, hi)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = report.Format(ticks[i].Value, u)
		}
	}
	return ticks
}

// latencies draws the latency distribution of every arm: how long the slowest
// tenth, hundredth and so on took. It returns "" when there are no histograms.
func latencies(rep *bench.Report, res *bench.Result) (template.HTML, error) {
	title := "latency by percentile, " + res.Scenario
	p := newPlot(title)
	addGrid(p, true, true)
	drawn := false
	for a, arm := range rep.Arms {
		h, err := res.Latencies(arm.Name)
		if err != nil {
			return "", err
		}
		if h == nil {
			continue
		}
		// 1-q falls by a tenth of a decade from point to point, as long as there are ten operations
		// behind a point.
		var curve plotter.XYs
		for nines := 0.0; math.Pow(10, -nines)*float64(h.Count()) >= 10 && nines <= 6; nines += 0.1 {
			q := 1 - math.Pow(10, -nines)
			curve = append(curve, plotter.XY{X: nines, Y: float64(max(1, h.Quantile(q)))})
		}
		if len(curve) < 2 {
			continue
		}
		line, err := plotter.NewLine(curve)
		if err != nil {
			return "", err
		}
		line.Color, line.Width = armColor(a), 1.8
		p.Add(line)
		p.Legend.Add(arm.Name, line)
		drawn = true
	}
	if !drawn {
		return "", nil
	}
	p.Legend.Top, p.Legend.Left = true, true
	p.X.Tick.Marker = plot.TickerFunc(percentileTicks)
	p.Y.Scale = plot.LogScale{}
	p.Y.Tick.Marker = plot.TickerFunc(timeTicks)
	return svg(p, latencyWidth, latencyTall, title)
}

// percentileTicks labels an axis of percentiles such as 99.9 %.
func percentileTicks(lo, hi float64) []plot.Tick {
	labels := []string{"min", "90%", "99%", "99.9%", "99.99%", "99.999%", "99.9999%"}
	ticks := []plot.Tick{{Value: math.Log10(2), Label: "50%"}}
	for i, l := range labels {
		if v := float64(i); v >= lo && v <= hi+1e-9 {
			ticks = append(ticks, plot.Tick{Value: v, Label: l})
		}
	}
	return ticks
}

// timeTicks marks 1, 2 and 5 of every decade of nanoseconds.
func timeTicks(lo, hi float64) []plot.Tick {
	var ticks []plot.Tick
	for decade := math.Pow(10, math.Floor(math.Log10(lo))); decade <= hi; decade *= 10 {
		for _, f := range []float64{1, 2, 5} {
			v := f * decade
			if v < lo || v > hi {
				continue
			}
			label := ""
			if f == 1 || hi/lo < 100 {
				label = report.Scaled(v, 1000, "ns", "µs", "ms", "s")
			}
			ticks = append(ticks, plot.Tick{Value: v, Label: label})
		}
	}
	return ticks
}

// A Bar is a figure of a picture of bars.
type Bar struct {
	Name  string
	Value float64
}

// The colors of pictures of bars. A browser in dark mode shows those that darkBars has in their place.
var (
	barColor = armColors[0]
	darkBars = map[string]string{"#24292F": "#E6EDF3", "#D8DEE4": "#3D444D", "#0072B2": "#56B4E9"}
)

// SVG writes a picture of bars, each with its value at its end, and a line at 1. It needs nothing but
// the file itself, and has the colors of the reader's mode, light or dark.
func SVG(w io.Writer, title string, bars []Bar) error {
	p := newPlot(title)
	p.BackgroundColor = nil
	addGrid(p, true, false)
	bars = slices.Clone(bars)
	slices.Reverse(bars) // the first goes on top
	var (
		values plotter.Values
		names  []string
		ends   plotter.XYLabels
	)
	for i, b := range bars {
		values, names = append(values, b.Value), append(names, b.Name)
		ends.XYs = append(ends.XYs, plotter.XY{X: b.Value, Y: float64(i)})
		ends.Labels = append(ends.Labels, fmt.Sprintf("%.2f", b.Value))
	}
	drawn, err := plotter.NewBarChart(values, rowHeight*0.7)
	if err != nil {
		return err
	}
	drawn.Horizontal, drawn.Color, drawn.LineStyle.Width = true, barColor, 0
	labels, err := plotter.NewLabels(ends)
	if err != nil {
		return err
	}
	labels.Offset = vg.Point{X: 4}
	for i := range labels.TextStyle {
		style := &labels.TextStyle[i]
		style.Font, style.Color, style.YAlign = p.Y.Tick.Label.Font, ink, text.YCenter
	}
	one, err := plotter.NewLine(plotter.XYs{{X: 1, Y: -0.7}, {X: 1, Y: float64(len(bars)) - 0.3}})
	if err != nil {
		return err
	}
	one.Color = ink
	p.Add(drawn, labels, one)
	p.NominalY(names...)
	p.Y.Color, p.Y.Tick.Color = color.Transparent, color.Transparent
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, 1.1, -0.7, float64(len(bars))-0.3
	p.X.Tick.Marker = plot.ConstantTicks{{Value: 0, Label: "0"}, {Value: 0.5, Label: "0.5"}, {Value: 1, Label: "net = 1"}}

	c := vgsvg.New(chartWidth*0.8, frameHeight+rowHeight*vg.Length(len(bars)))
	p.Draw(draw.New(c))
	var b bytes.Buffer
	if _, err := c.WriteTo(&b); err != nil {
		return err
	}
	return writeThemed(w, b.String())
}

// writeThemed writes a picture whose colors follow the reader's mode.
func writeThemed(w io.Writer, s string) error {
	var light, dark strings.Builder
	for i, from := range []string{"#24292F", "#D8DEE4", "#0072B2"} {
		fmt.Fprintf(&light, "--c%d:%s;", i, from)
		fmt.Fprintf(&dark, "--c%d:%s;", i, darkBars[from])
		s = strings.ReplaceAll(s, from, fmt.Sprintf("var(--c%d)", i))
	}
	s = strings.ReplaceAll(s, "font-family:Liberation Sans;", "font-family:Liberation Sans,Arial,Helvetica,sans-serif;")
	open := strings.Index(s, "<svg")
	end := strings.Index(s[max(0, open):], ">")
	if open < 0 || end < 0 {
		return fmt.Errorf("no SVG came out")
	}
	at := open + end + 1
	_, err := fmt.Fprintf(w, "%s\n<style>:root{%s}@media(prefers-color-scheme:dark){:root{%s}}</style>%s", s[:at], light.String(), dark.String(), s[at:])
	return err
}
