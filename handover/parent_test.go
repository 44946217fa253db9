package handover

import (
	"strings"
	"testing"
)

func TestParentage(t *testing.T) {
	const parent, other = 7, 8
	for _, tt := range []struct {
		name      string
		p         parentage
		now       int
		anyParent bool
		refused   string // "": it isn't
	}{
		{"pid 1", parentage{pid: 1, notifies: true, isSuccessor: true}, 0, true, "pid 1"},
		{"systemd", parentage{pid: 9, parent: parent, parentName: "systemd", notifies: true}, parent, false, ""},
		{"systemd without Type=notify", parentage{pid: 9, parent: parent, parentName: "systemd"}, parent, false, "7 (systemd)"},
		{"a script of systemd's", parentage{pid: 9, parent: parent, parentName: "bash", notifies: true}, parent, false, "7 (bash)"},
		{"a shell", parentage{pid: 9, parent: parent, parentName: "bash", isJob: true}, parent, false, ""},
		{"a terminal's program", parentage{pid: 9, parent: parent, parentName: "go", isJob: true}, parent, false, "7 (go)"},
		{"an orphan", parentage{pid: 9, parent: parent, parentName: "bash"}, other, false, ""},
		{"a successor", parentage{pid: 9, parent: parent, parentName: "server", isSuccessor: true}, parent, false, ""},
		{"a supervisor", parentage{pid: 9, parent: parent, parentName: "runsv"}, parent, false, "AnyParent"},
		{"any parent", parentage{pid: 9, parent: parent, parentName: "runsv"}, parent, true, ""},
	} {
		err := tt.p.check(tt.now, tt.anyParent)
		if tt.refused == "" && err != nil || tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused)) {
			t.Errorf("%s: got %v, want %q", tt.name, err, tt.refused)
		}
	}
}
