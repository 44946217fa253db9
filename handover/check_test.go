package handover

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore"
	"github.com/percore/percore/internal/testnet"
)

// TestServiceChecks: Run fails before anything serves if the Service makes no sense, and says which
// field is wrong. It closes the listeners that it was given.
func TestServiceChecks(t *testing.T) {
	server := func() Lifecycle { return &http.Server{} }
	part := func(name string) Part { return Part{Name: name, Address: "127.0.0.1:0", Server: server()} }
	with := func(change func(*Part)) []Part {
		p := part("web")
		change(&p)
		return []Part{part("first"), p}
	}
	one := []Part{part("web")}
	for name, c := range map[string]struct {
		service Service
		want    []string // in the error
	}{
		"no parts":               {Service{}, []string{"no Parts"}},
		"too many parts":         {Service{Parts: make([]Part, listenersMax)}, []string{"501 Parts"}},
		"no name":                {Service{Parts: []Part{part("a"), part("")}}, []string{"Parts[1]", "Name"}},
		"two of one name":        {Service{Parts: []Part{part("a"), part("b"), part("a")}}, []string{"Parts[0]", "Parts[2]", `"a"`}},
		"a name that's too long": {Service{Parts: []Part{part(strings.Repeat("a", partNameMax+1))}}, []string{"101 bytes"}},
		"no server":              {Service{Parts: with(func(p *Part) { p.Server = nil })}, []string{`"web"`, "Server is nil"}},
		"a nil server":           {Service{Parts: with(func(p *Part) { p.Server = (*http.Server)(nil) })}, []string{`"web"`, "Server is nil"}},
		"a server only to serve": {Service{Parts: with(func(p *Part) { p.Server, p.Serve = nil, server().Serve })}, []string{`"web"`, "Server is nil"}},
		"no address":             {Service{Parts: with(func(p *Part) { p.Address = "" })}, []string{`"web"`, "Address", "Listener"}},
		"an address of a name":   {Service{Parts: with(func(p *Part) { p.Address = "localhost" })}, []string{`"web"`, "Address", "missing port"}},
		"an address of a port":   {Service{Parts: with(func(p *Part) { p.Address = "8080" })}, []string{`"web"`, "Address", "missing port"}},
		"a port out of range":    {Service{Parts: with(func(p *Part) { p.Address = ":80800" })}, []string{`"web"`, "port", "80800"}},
		"a nil listener":         {Service{Parts: with(func(p *Part) { p.Listener = (*percore.Listener)(nil) })}, []string{`"web"`, "nil *percore.Listener"}},
		"a negative drain":       {Service{Parts: one, Drain: -time.Second}, []string{"Drain is -1s"}},
		"a negative delay":       {Service{Parts: one, DrainDelay: -time.Second}, []string{"DrainDelay is -1s"}},
		"restart at SIGTERM":     {Service{Parts: one, Restart: syscall.SIGTERM}, []string{"Restart", "SIGHUP"}},
		"restart at Ctrl-C":      {Service{Parts: one, Restart: os.Interrupt}, []string{"Restart", "SIGHUP"}},
		"restart at SIGKILL":     {Service{Parts: one, Restart: os.Kill}, []string{"Restart", "SIGHUP"}},
	} {
		t.Run(name, func(t *testing.T) {
			testnet.NoLeaks(t)
			l := testnet.Listen(t, net.Listen, testnet.TCP4)
			c.service.Parts = append(c.service.Parts, Part{Name: "last", Listener: l, Server: server()})
			if name == "no parts" {
				c.service.Parts = nil
				l.Close()
			}
			c.service.Ready = func([]net.Listener) { t.Error("Ready was called") }
			err := c.service.Run(t.Context())
			for _, want := range c.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got the error %v, want one with %q", err, want)
				}
			}
			if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("Accept: got %v, want a closed listener", err)
			}
		})
	}
}

// TestServiceTakesAddresses: check lets every address through that net.Listen takes.
func TestServiceTakesAddresses(t *testing.T) {
	for _, address := range []string{":0", "localhost:8080", "[::1]:443", "0.0.0.0:http", ":https", "localhost:"} {
		p := Part{Name: strings.Repeat("a", partNameMax), Address: address, Server: &http.Server{}}
		if err := p.check(); err != nil {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// TestNilArguments: each function fails in its caller, with a line that says what is nil.
func TestNilArguments(t *testing.T) {
	ctx := context.Background()
	discard := func(_ any, err error) error { return err }
	for name, call := range map[string]func() error{
		"Give":      func() error { return Give(ctx, nil) },
		"Take":      func() error { return discard(Take(ctx, nil)) },
		"Refuse":    func() error { return Refuse(nil, errors.New("no")) },
		"CheckPeer": func() error { return discard(CheckPeer(nil)) },
		"Start":     func() error { return discard(Start(nil)) },
		"GRPC":      func() error { GRPC(nil); return nil },
		"Add":       func() error { new(Conns).Add(nil); return nil },
		"Carry":     func() error { new(Conns).Carry("a", nil); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if reason := recover(); reason != nil && (!strings.Contains(fmt.Sprint(reason), "nil") || strings.Contains(fmt.Sprint(reason), "dereference")) {
					t.Errorf("got the panic %v, want one that says what is nil", reason)
				}
			}()
			if err := call(); err == nil || !strings.Contains(err.Error(), "nil") {
				t.Errorf("got the error %v, want one that says what is nil", err)
			}
		})
	}
	new(Successor).Carry(nil)
}
