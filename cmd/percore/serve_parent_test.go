package main

import (
	"strings"
	"testing"
)

// A process is replaced only if that can't be taken for the end of the service.
func TestParentage(t *testing.T) {
	const adopted = 99
	for _, test := range []struct {
		name    string
		p       parentage
		mode    string
		parent  int    // now; 0: the same
		hangup  string // in the error for SIGHUP; "": none
		upgrade string // for -upgrade
	}{
		{name: "pid 1", p: parentage{pid: 1, isJob: true, notifies: true}, hangup: "is pid 1", upgrade: "is pid 1"},
		{name: "pid 1, always", p: parentage{pid: 1}, mode: handoverAlways},
		{name: "never", p: parentage{isSupervised: true}, mode: handoverNever, hangup: "never", upgrade: "never"},
		{name: "tini", p: parentage{parentName: "tini"}, hangup: "process 7 (tini), which has started", upgrade: "-supervise"},
		{name: "tini, terminal", p: parentage{parentName: "tini", isJob: true}, hangup: "(tini)", upgrade: "(tini)"},
		{name: "podman's socket, tini", p: parentage{parentName: "catatonit", notifies: true}, hangup: "(catatonit)", upgrade: "(catatonit)"},
		{name: "supervised", p: parentage{parentName: "percore", isSupervised: true}, upgrade: "send SIGHUP to the supervising process"},
		{name: "supervised successor", p: parentage{isChild: true, isSupervised: true}, upgrade: "send SIGHUP"},
		{name: "systemd, simple", p: parentage{parentName: "systemd"}, hangup: "(systemd)", upgrade: "(systemd)"},
		{name: "systemd, notify", p: parentage{parentName: "systemd", notifies: true}, upgrade: "use systemctl reload"},
		{name: "systemd, successor", p: parentage{isChild: true, notifies: true}, parent: adopted, upgrade: "use systemctl reload"},
		{name: "script", p: parentage{parentName: "bash"}, hangup: "(bash)", upgrade: "(bash)"},
		{name: "shell", p: parentage{parentName: "bash", isJob: true}},
		{name: "orphan", p: parentage{parentName: "runsv"}, parent: adopted},
		{name: "successor", p: parentage{isChild: true}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.p.pid == 0 {
				test.p.pid, test.p.parent = 8, 7
			}
			if test.parent == 0 {
				test.parent = test.p.parent
			}
			if test.mode == "" {
				test.mode = handoverAuto
			}
			for isOutside, want := range map[bool]string{false: test.hangup, true: test.upgrade} {
				err := test.p.check(test.mode, test.parent, isOutside)
				if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
					t.Errorf("from outside %t: got %v, want %q", isOutside, err, want)
				}
			}
		})
	}
}
