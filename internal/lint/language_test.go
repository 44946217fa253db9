package lint

import (
	"go/ast"
	"path"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// A stretch is a line of prose, in a comment or a document, and its place.
type stretch struct{ at, text string }

// vague matches the words that stand where a thing should be named: the loop, the reader, the caller.
var vague = regexp.MustCompile(`(?i)\b(whoever|whomever|nobody|somebody|anybody|everybody|someone|anyone|thereby|for want of|but for)\b`)

// clauseFirst matches the beginning of a sentence whose subject is a clause, at the beginning of a
// comment or behind another sentence; questions are none.
var clauseFirst = regexp.MustCompile(`(?:^|[.;:] )(?:What|Who) [^?]*$`)

// translated matches phrases that read as translated. CONTRIBUTING.md has the words to use instead.
var translated = regexp.MustCompile(`(?i)\b(processor time|for ever|be it only|dearer|as ever|in vain|time-outs?|hand-overs?|set-up)\b`)

// language: the subject of a sentence is a named thing. A reader stumbles where a clause, or a
// person, stands for a goroutine, a caller or a value.
func language(t *testing.T, tr *tree) {
	for _, s := range tr.prose() {
		if found := vague.FindString(s.text); found != "" {
			t.Errorf("%s: %q; name the thing that is meant, or say it in simpler words: %s", s.at, found, s.text)
		}
		if clauseFirst.MatchString(s.text) {
			t.Errorf("%s: a sentence begins with a clause; begin it with the thing that is meant: %s", s.at, s.text)
		}
		if found := translated.FindString(s.text); found != "" {
			t.Errorf("%s: %q reads as translated; say it as package net's comments would: %s", s.at, found, s.text)
		}
	}
}

// prose returns the lines of all comments and documents, without code and quotations.
func (tr *tree) prose() (all []stretch) {
	for _, f := range tr.files {
		if ast.IsGenerated(f.syntax) {
			continue
		}
		for _, group := range f.syntax.Comments {
			for _, c := range group.List {
				all = append(all, stretch{tr.at(c.Pos()), quoted.ReplaceAllString(strings.TrimSpace(strings.TrimPrefix(c.Text, "//")), "")})
			}
		}
	}
	for _, s := range tr.documents() {
		all = append(all, stretch{s.at, quoted.ReplaceAllString(s.text, "")})
	}
	return all
}

// documents returns the lines of all documents, without blocks of code.
func (tr *tree) documents() (all []stretch) {
	inCode := false
	tr.eachLine(func(name string, number int, line string) {
		if path.Ext(name) != ".md" {
			return
		}
		if strings.HasPrefix(line, "```") {
			inCode = !inCode
			return
		}
		if !inCode && !strings.HasPrefix(line, "    ") {
			all = append(all, stretch{name + ":" + strconv.Itoa(number), line})
		}
	})
	return all
}

// quoted matches code and quotations in prose.
var quoted = regexp.MustCompile("`[^`]*`|\"[^\"]*\"")

// charactersMax is how long a line of prose may be. Lines are wrapped at 100 characters; one or
// two more do no harm.
const charactersMax = 105

// table matches a comment with columns of its own, or code.
var table = regexp.MustCompile(`//(.*\S)?  +\S`)

// wrapping: lines of prose are short. Tables, code and comments behind code are no prose.
func wrapping(t *testing.T, tr *tree) {
	inCode := false
	tr.eachLine(func(name string, number int, line string) {
		isProse := false
		switch path.Ext(name) {
		case ".md":
			if strings.HasPrefix(line, "```") {
				inCode = !inCode
			}
			isProse = !inCode && !strings.HasPrefix(line, "    ") && !strings.HasPrefix(line, "|")
		case ".go":
			isProse = strings.HasPrefix(strings.TrimLeft(line, "\t"), "// ") && !table.MatchString(line) && !strings.HasSuffix(name, ".pb.go")
		}
		if n := utf8.RuneCountInString(line); isProse && n > charactersMax {
			t.Errorf("%s:%d: got %d characters, want %d at most; wrap the paragraph", name, number, n, charactersMax)
		}
	})
}
