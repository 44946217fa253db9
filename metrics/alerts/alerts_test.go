package alerts

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// Prometheus reads the rules, their expressions and templates without a complaint. Each says what is
// wrong and how bad it is, and the documents what to do.
func TestAlerts(t *testing.T) {
	groups, errs := rulefmt.ParseFile(filepath.Join("..", "..", "docs", "alerts.yml"), false, model.UTF8Validation, parser.NewParser(parser.Options{}))
	for _, err := range errs {
		t.Error(err)
	}
	if groups == nil || len(groups.Groups) != 1 {
		t.Fatalf("got %v, want one group", groups)
	}
	names := make(map[string]bool)
	for _, r := range groups.Groups[0].Rules {
		if r.Alert == "" || names[r.Alert] {
			t.Errorf("rule %q: want an alert with a name of its own", r.Alert)
		}
		names[r.Alert] = true
		if r.Annotations["summary"] == "" {
			t.Errorf("%s has no summary", r.Alert)
		}
		if s := r.Labels["severity"]; s != "warning" && s != "critical" {
			t.Errorf("%s: got severity %q", r.Alert, s)
		}
	}
	if len(names) < 10 {
		t.Errorf("got %d alerts, want all", len(names))
	}
	documented := make(map[string]bool)
	for _, file := range []string{"OPERATIONS.md", "METRICS.md"} {
		text, err := os.ReadFile(filepath.Join("..", "..", "docs", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range regexp.MustCompile(`\bPercore\w+`).FindAllString(string(text), -1) {
			documented[name] = true
			if !names[name] {
				t.Errorf("docs/%s: there is no alert %s", file, name)
			}
		}
	}
	for name := range names {
		if !documented[name] {
			t.Errorf("the documents say nothing about %s", name)
		}
	}
}
