package handover

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"syscall"
)

// check finds what would otherwise fail at the first restart, in a shutdown, or in a server's goroutine.
func (s *Service) check() error {
	if len(s.Parts) == 0 {
		return errors.New("it has no Parts: add one for each server")
	}
	if len(s.Parts) > listenersMax {
		return fmt.Errorf("it has %d Parts, and a handover takes %d at most", len(s.Parts), listenersMax)
	}
	for i := range s.Parts {
		p := &s.Parts[i]
		if err := p.check(s.Restart != nil); err != nil {
			return fmt.Errorf("its Parts[%d] (%q): %w", i, p.Name, err)
		}
		for j, other := range s.Parts[:i] {
			if other.Name == p.Name {
				return fmt.Errorf("its Parts[%d] and Parts[%d] are both named %q: a handover finds parts by their names, so give each its own", j, i, p.Name)
			}
			if p.Listener != nil && isSame(p.Listener, other.Listener) {
				return fmt.Errorf("its Parts[%d] and Parts[%d] have the same Listener: give each its own", j, i)
			}
		}
	}
	return s.checkRest()
}

// check is Service.check for a part. restarts says that its listener is going to be handed over.
func (p *Part) check(restarts bool) error {
	switch {
	case p.Name == "":
		return errors.New("its Name is empty: a handover finds parts by their names, so give it one")
	case len(p.Name) > carrierNameMax:
		return fmt.Errorf("its Name has %d bytes: use %d at most", len(p.Name), carrierNameMax)
	case isNil(p.Server):
		return errors.New("its Server is nil: set it to what serves the part, and what Shutdown ends, also if Serve is set")
	case p.Listener != nil && isNil(p.Listener):
		return fmt.Errorf("its Listener is a nil %T: leave it out, or open it", p.Listener)
	case p.Listener != nil && p.Config != nil:
		return errors.New("its Config is for the listener at Address, and Listener is set, too: open Listener with the Config, or leave one of them out")
	case p.Listener == nil && p.Address == "":
		return errors.New(`its Address is empty, and there is no Listener: set one of them (":0" is a free port of all addresses)`)
	}
	if !restarts || p.Listener == nil {
		return nil
	}
	if _, err := movingListener(p.Listener); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("each Restart would fail: %w; use percore.Listen, or leave Restart nil", err)
	}
	return nil
}

func (s *Service) checkRest() error {
	switch s.Restart {
	case os.Interrupt, syscall.SIGTERM, os.Kill:
		return fmt.Errorf("its Restart is %v, which ends the process: use another signal, such as syscall.SIGHUP", s.Restart)
	}
	switch {
	case s.DrainDelay < 0:
		return fmt.Errorf("its DrainDelay is %v: want 0, for no delay, or more", s.DrainDelay)
	case s.Drain < 0:
		return fmt.Errorf("its Drain is %v: want 0, for %v, or more", s.Drain, defaultDrain)
	}
	return nil
}

// errNil is about an argument of an exported function that is nil.
func errNil(function, name, pass string) error {
	return fmt.Errorf("handover: %s: %s is nil: pass %s", function, name, pass)
}

// aContext is what to pass in place of a nil context.
const aContext = "context.Background(), or a context that ends"

// isNil reports whether v is nil, or an interface that holds a nil pointer, function or map.
func isNil(v any) bool {
	r := reflect.ValueOf(v)
	kinds := []reflect.Kind{reflect.Pointer, reflect.Func, reflect.Map, reflect.Chan, reflect.Interface, reflect.Slice}
	return !r.IsValid() || slices.Contains(kinds, r.Kind()) && r.IsNil()
}

// isSame reports whether two listeners are the same one. Those of types that can't be compared aren't.
func isSame(a, b any) bool { return reflect.ValueOf(a).Comparable() && a == b }
