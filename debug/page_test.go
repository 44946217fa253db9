package debug

import (
	"encoding/xml"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/loop"
	"github.com/percore/percore/pool"
)

// elements are those of HTML and SVG that the page may use. A browser takes another name for an
// element without a meaning of its own, and shows it without a complaint.
var elements = strings.Fields(`a b body button details div figcaption figure h1 h2 head header html li link main meta meter
	noscript output p path script section small span summary svg table tbody td tfoot th thead title tr ul`)

// TestElements: the page has HTML's elements only.
func TestElements(t *testing.T) {
	for _, e := range parse(t, render(t, everything())) {
		if !slices.Contains(elements, e.name) {
			t.Errorf("the page has an element <%s>, want one of HTML's", e.name)
		}
	}
}

// TestSelectors: what the style sheet and the script look for is on the page.
func TestSelectors(t *testing.T) {
	page := append(parse(t, render(t, everything())), parse(t, render(t, percore.Stats{}))...)
	for _, selector := range slices.Concat(selectorsOfStyle(t), selectorsOfScript(t)) {
		if !slices.ContainsFunc(page, func(e *element) bool { return e.matches(selector) }) {
			t.Errorf("the selector %q matches nothing on the page", selector)
		}
	}
}

// everything returns stats with which the page shows all of its parts.
func everything() percore.Stats {
	return percore.Stats{
		Listeners: []percore.ListenerStats{{Network: "tcp", Address: "a"}},
		Loops:     loop.ProcessStats{Groups: []loop.Stats{{Group: "g", Loops: 2, PerLoop: []loop.LoopStats{{}}}}},
		Pool:      pool.Stats{Leaked: 1},
		Adapters: []percore.AdapterStats{
			{Adapter: "a", Metrics: []percore.Metric{{Name: "m", Value: 1}}},
			{Adapter: "http", Metrics: []percore.Metric{{Name: "tls_unsafe", Value: 1}}},
		},
	}
}

// An element is one of a page, with what selectors look for.
type element struct {
	parent  *element
	name    string
	id      string
	classes []string
}

// parse returns the elements of a page.
func parse(t *testing.T, page string) (all []*element) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(page))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	var open *element
	for {
		token, err := d.Token()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			open = &element{parent: open, name: token.Name.Local}
			for _, a := range token.Attr {
				switch a.Name.Local {
				case "id":
					open.id = a.Value
				case "class":
					open.classes = strings.Fields(a.Value)
				}
			}
			all = append(all, open)
		case xml.EndElement:
			open = open.parent
		}
	}
}

// matches reports whether a selector of names, classes and ids, one within the other, matches e.
func (e *element) matches(selector string) bool {
	outer, inner := "", selector
	if i := strings.LastIndexByte(selector, ' '); i >= 0 {
		outer, inner = selector[:i], selector[i+1:]
	}
	if !e.is(inner) {
		return false
	}
	if outer == "" {
		return true
	}
	for p := e.parent; p != nil; p = p.parent {
		if p.matches(outer) {
			return true
		}
	}
	return false
}

// is reports whether e has the name, class or id of a selector's part.
func (e *element) is(part string) bool {
	if i := strings.IndexAny(part, ":["); i >= 0 { // first-child, hidden and the like
		part = part[:i]
	}
	switch {
	case part == "" || part == "*":
		return true
	case part[0] == '#':
		return e.id == part[1:]
	case part[0] == '.':
		return slices.Contains(e.classes, part[1:])
	}
	return e.name == part
}

// selectorsOfStyle returns the selectors in the style sheet.
func selectorsOfStyle(t *testing.T) (all []string) {
	for _, m := range regexp.MustCompile(`(?m)^\s*([^@{}]+) \{`).FindAllStringSubmatch(file(t, "page.css"), -1) {
		all = append(all, alternatives(m[1])...)
	}
	return all
}

// alternatives returns the parts of a list of selectors.
func alternatives(list string) (all []string) {
	for selector := range strings.SplitSeq(list, ",") {
		all = append(all, strings.TrimSpace(selector))
	}
	return all
}

// selectorsOfScript returns what the script looks for.
func selectorsOfScript(t *testing.T) (all []string) {
	script := file(t, "page.js")
	for _, m := range regexp.MustCompile(`querySelector(?:All)?\("([^"]+)"\)`).FindAllStringSubmatch(script, -1) {
		all = append(all, alternatives(m[1])...)
	}
	for _, m := range regexp.MustCompile(`getElementById\("([^"]+)"\)`).FindAllStringSubmatch(script, -1) {
		all = append(all, "#"+m[1])
	}
	return all
}

// file returns the text of one of the page's files. It fails the test if nothing is in it.
func file(t *testing.T, name string) string {
	t.Helper()
	text, err := files.ReadFile(name)
	if err != nil || len(text) == 0 {
		t.Fatalf("%s: got %d bytes and the error %v", name, len(text), err)
	}
	return string(text)
}
