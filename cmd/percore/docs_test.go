package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"

	_ "github.com/percore/percore/adapters/reactor"          // for its metrics
	_ "github.com/percore/percore/adapters/wsadapter/moving" // the same
	_ "github.com/percore/percore/metrics/tcpinfo"           // the same
)

// TestMetricNames: the documents name no metric that doesn't exist, and docs/METRICS.md says of each
// what to do. (Each has its own help text; metrics/alerts checks the rules of the alerts themselves.)
func TestMetricNames(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("metrics of loops and listeners are Linux's")
	}
	needEngine(t)
	s := startServers(t)
	s.fetch("GET", "/echo", nil, nil)
	s.baseURL = s.adminURL
	_, metrics := s.fetch("GET", "/metrics", nil, nil)
	for file, least := range map[string]int{"METRICS.md": 100, "alerts.yml": 10, "grafana.json": 20} {
		data, err := os.ReadFile(filepath.Join("..", "..", "docs", file))
		if err != nil {
			t.Fatal(err)
		}
		text := string(data)
		if filepath.Ext(file) == ".json" && !json.Valid(data) {
			t.Errorf("docs/%s isn't JSON", file)
		}
		names := regexp.MustCompile(`\bpercore_\w+`).FindAllString(text, -1)
		if len(names) < least {
			t.Errorf("docs/%s has %d names of metrics, want %d or more", file, len(names), least)
		}
		for _, name := range names {
			if !strings.Contains(metrics, "\n# TYPE "+name+" ") {
				t.Errorf("docs/%s: there is no metric %s", file, name)
			}
		}
		if file != "METRICS.md" {
			continue
		}
		rows := firstCells(text)
		for _, m := range regexp.MustCompile(`(?m)^# TYPE (percore_\w+) `).FindAllStringSubmatch(metrics, -1) {
			if n := rows[m[1]]; n != 1 {
				t.Errorf("docs/METRICS.md has %d rows for %s, want one", n, m[1])
			}
		}
	}
}

// firstCells counts the names of metrics in the first cells of a document's tables.
func firstCells(text string) map[string]int {
	cells := make(map[string]int)
	for line := range strings.Lines(text) {
		cell, _, _ := strings.Cut(strings.TrimPrefix(line, "|"), "|")
		for _, name := range regexp.MustCompile(`percore_\w+`).FindAllString(cell, -1) {
			if strings.HasPrefix(line, "|") {
				cells[name]++
			}
		}
	}
	return cells
}

// TestTables: each table has a head. A line between two rows would end it, and the rest would be shown
// as text.
func TestTables(t *testing.T) {
	for _, file := range []string{"OPERATIONS.md", "METRICS.md"} {
		data, err := os.ReadFile(filepath.Join("..", "..", "docs", file))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(string(data), "\n")
		for i := 1; i < len(lines)-1; i++ {
			begins := strings.HasPrefix(lines[i], "|") && !strings.HasPrefix(lines[i-1], "|")
			if begins && !strings.HasPrefix(lines[i+1], "|---") {
				t.Errorf("%s, line %d is a row without a table: %.60s", file, i+1, lines[i])
			}
		}
	}
}
