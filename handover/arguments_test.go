package handover

import (
	"context"
	"errors"
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

// A Service that can't work, or can't restart, says so at once, and closes the listeners it owns.
func TestServiceChecks(t *testing.T) {
	web := func(change func(*Part)) Part {
		p := Part{Name: "web", Address: "127.0.0.1:0", Server: new(http.Server)}
		change(&p)
		return p
	}
	same := func(*Part) {}
	shared := testnet.Listen(t, percore.Listen, testnet.TCP4)
	listening := func(name string) Part {
		return Part{Name: name, Listener: shared, Server: new(http.Server)}
	}
	for _, tt := range []struct {
		name    string
		service *Service
		want    string
	}{
		{"no Service", nil, "Service is nil"},
		{"no parts", &Service{}, "no Parts"},
		{"too many parts", &Service{Parts: make([]Part, listenersMax+1)}, "501 Parts"},
		{"no name", &Service{Parts: []Part{web(func(p *Part) { p.Name = "" })}}, "Name is empty"},
		{"long name", &Service{Parts: []Part{web(func(p *Part) { p.Name = strings.Repeat("x", carrierNameMax+1) })}}, "101 bytes"},
		{"two of a name", &Service{Parts: []Part{web(same), web(same)}}, `both named "web"`},
		{"no server", &Service{Parts: []Part{web(func(p *Part) { p.Server = nil })}}, "Server is nil"},
		{"nil server", &Service{Parts: []Part{web(func(p *Part) { p.Server = (*http.Server)(nil) })}}, "Server is nil"},
		{"no server, Serve", &Service{Parts: []Part{web(func(p *Part) {
			p.Server, p.Serve = nil, func(net.Listener) error { return nil }
		})}}, "Server is nil"},
		{"no address", &Service{Parts: []Part{web(func(p *Part) { p.Address = "" })}}, "Address is empty"},
		{"nil listener", &Service{Parts: []Part{web(func(p *Part) { p.Listener = (*net.TCPListener)(nil) })}}, "Listener is a nil *net.TCPListener"},
		{"options beside a listener", &Service{Parts: []Part{{
			Name: "web", Listener: shared, Config: &percore.ListenConfig{MaxConns: 9}, Server: new(http.Server),
		}}}, "Config is for the listener at Address"},
		{"one listener twice", &Service{Parts: []Part{listening("a"), listening("b")}}, "same Listener"},
		{"negative delay", &Service{Parts: []Part{web(same)}, DrainDelay: -1}, "DrainDelay is -1ns"},
		{"negative drain", &Service{Parts: []Part{web(same)}, Drain: -time.Second}, "Drain is -1s"},
		{"restart at the end", &Service{Parts: []Part{web(same)}, Restart: syscall.SIGTERM}, "Restart is terminated"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := tt.service.Run(t.Context())
			if err == nil || !strings.HasPrefix(err.Error(), "handover: ") || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want an error that says %q", err, tt.want)
			}
		})
	}
	if _, err := shared.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: got %v, want a closed listener", err)
	}
}

// A listener that can't be handed over is an error only for a Service that restarts.
func TestServiceChecksRestart(t *testing.T) {
	if !isSupported() {
		t.Skip("nothing can be handed over here")
	}
	for name, listen := range map[string]func() net.Listener{
		"a wrapper":   func() net.Listener { return struct{ net.Listener }{testnet.Listen(t, percore.Listen, testnet.TCP4)} },
		"package net": func() net.Listener { return testnet.Listen(t, net.Listen, testnet.TCP4) },
		"a unix socket of package net": func() net.Listener {
			return testnet.Listen(t, net.Listen, testnet.Unix)
		},
	} {
		for _, restart := range []os.Signal{nil, syscall.SIGHUP} {
			s := Service{Parts: []Part{{Name: "web", Listener: listen(), Server: new(http.Server)}}, Restart: restart}
			ctx, stop := context.WithCancel(t.Context())
			s.Ready = func([]net.Listener) { stop() }
			err := s.Run(ctx)
			stop()
			switch {
			case restart == nil && err != nil:
				t.Errorf("%s, without Restart: %v", name, err)
			case restart != nil && (err == nil || !strings.Contains(err.Error(), "each Restart would fail")):
				t.Errorf("%s, with Restart: got %v, want an error", name, err)
			}
		}
	}
}
