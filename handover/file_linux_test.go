//go:build !percore_net

package handover

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// sourceFunc is a source without connections.
type sourceFunc func() error

func (f sourceFunc) HandOver(context.Context, net.Listener, func([]percore.WaitingConn) error) error {
	return f()
}

// TestSocketFile: when a predecessor closes its listener during a handover the file of the unix socket
// stays for the successor, and goes if the handover fails. While the listener is open the file stays.
func TestSocketFile(t *testing.T) {
	for _, test := range []struct {
		name   string
		closes bool
		err    error // the source's
		stays  bool
	}{
		{"closed, moves", true, nil, true},
		{"closed, fails", true, errTest, false},
		{"open, moves", false, nil, true},
		{"open, fails", false, errTest, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			ln := testnet.Listen(t, percore.Listen, testnet.Unix)
			path := ln.Addr().String()
			source := sourceFunc(func() error {
				if test.closes {
					ln.Close()
				}
				return test.err
			})
			a, gave := meet(t, serverOf("web", ln, source))
			theirs := mustOpen(t, a, "web")
			defer theirs.Close()
			readyErr := a.ready(t.Context(), nil)
			gaveErr := testnet.Receive(t, "give", gave)
			if (readyErr == nil) != (test.err == nil) || test.err != nil && !strings.Contains(gaveErr.Error(), test.err.Error()) {
				t.Errorf("ready: %v, give: %v, want an error %v", readyErr, gaveErr, test.err)
			}
			exists := func() bool {
				_, err := os.Stat(path)
				return err == nil
			}
			if got := exists(); got != test.stays {
				t.Errorf("the file is there: got %t, want %t", got, test.stays)
			}
			ln.Close()
			if got, want := exists(), test.err == nil; got != want {
				t.Errorf("the file is there after the predecessor's Close: got %t, want %t", got, want)
			}
			theirs.Close()
			if exists() {
				t.Error("the file is there at the end")
			}
		})
	}
}

// TestEngineNet: where the environment has the engine off, both sides of a restart say so at once.
func TestEngineNet(t *testing.T) {
	testnet.NoLeaks(t)
	t.Setenv("PERCOREDEBUG", "engine=net")
	for _, ln := range []net.Listener{testnet.Listen(t, percore.Listen, testnet.TCP4), testnet.Listen(t, net.Listen, testnet.TCP4)} {
		r := run{Service: &Service{Parts: make([]Part, 1)}, listeners: []net.Listener{ln}}
		if _, err := r.servers(); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("a %T: got %v, want an error that wraps %v", ln, err, errors.ErrUnsupported)
		}
	}
	t.Setenv(variable, "3")
	if _, err := inherited(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a successor: got %v, want an error that wraps %v", err, errors.ErrUnsupported)
	}
}
