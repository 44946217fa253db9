package handover

import (
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"strconv"
	"syscall"
	"time"
)

// check returns the first mistake in the Service's fields, as a sentence that says what to do. A mistake
// that is found later is found at a restart, at night: two parts of one name serve until then.
func (s *Service) check() error {
	if len(s.Parts) == 0 {
		return errors.New("handover: the Service has no Parts, so it would serve nothing: add a Part with a Name, a Server, and an Address or a Listener")
	}
	for _, d := range []struct {
		name string
		time time.Duration
	}{{"DrainDelay", s.DrainDelay}, {"Drain", s.Drain}} {
		if d.time < 0 {
			return fmt.Errorf("handover: the Service's %s is %v: give a time, or 0 for the default", d.name, d.time)
		}
	}
	switch s.Restart {
	case os.Interrupt, syscall.SIGTERM:
		return fmt.Errorf("handover: the Service's Restart is the signal %q, at which Run stops: use syscall.SIGHUP", s.Restart)
	case os.Kill:
		return fmt.Errorf("handover: the Service's Restart is the signal %q, which no process can catch: use syscall.SIGHUP", s.Restart)
	}
	if len(s.Parts) > listenersMax {
		return fmt.Errorf("handover: the Service has %d Parts: at most %d can be handed over", len(s.Parts), listenersMax)
	}
	names := make(map[string]int)
	for i := range s.Parts {
		p := &s.Parts[i]
		if p.Name == "" {
			return fmt.Errorf("handover: Parts[%d] has no Name: give it one, by which a successor finds its listener", i)
		}
		if first, ok := names[p.Name]; ok {
			return fmt.Errorf("handover: Parts[%d] and Parts[%d] are both named %q: a successor could not tell their listeners apart", first, i, p.Name)
		}
		names[p.Name] = i
		if err := p.check(); err != nil {
			return fmt.Errorf("handover: part %q: %w", p.Name, err)
		}
	}
	return nil
}

// check returns the first mistake in the fields of a part that has a name.
func (p *Part) check() error {
	if len(p.Name) > partNameMax {
		return fmt.Errorf("its Name has %d bytes: at most %d can be handed over", len(p.Name), partNameMax)
	}
	if isNil(p.Server) {
		return errors.New("its Server is nil: set an *http.Server, what httpadapter.Wrap or GRPC returns, or another Lifecycle")
	}
	if p.Listener != nil {
		if isNil(p.Listener) {
			return fmt.Errorf("its Listener is a nil %T: look at the error of the function that should have made it", p.Listener)
		}
		return nil
	}
	if p.Address == "" {
		return errors.New(`it has neither an Address nor a Listener: set Address to "localhost:8080", for example`)
	}
	_, port, err := net.SplitHostPort(p.Address)
	if err != nil {
		return fmt.Errorf(`its Address is no HOST:PORT such as "localhost:8080" or ":8080": %w`, err)
	}
	if _, err := net.LookupPort("tcp", port); err != nil {
		return fmt.Errorf("the port of its Address %s: %w", strconv.Quote(p.Address), err)
	}
	return nil
}

// isNil reports whether an interface is nil, or has a nil pointer, which is what a program has that
// forgot to look at an error.
func isNil(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	return r.Kind() == reflect.Pointer && r.IsNil()
}
