package target

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/pprof"
	"strings"

	"github.com/percore/percore/cmd/percore/internal/bench/control"
)

// Main runs a target process. It serves control requests from r and answers on w until r ends. It
// returns the exit status of the process.
func Main(r io.Reader, w io.Writer) int {
	p := &process{}
	if err := control.Serve(r, w, p.handle); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// process is the state of a target process. One goroutine uses it, which serves control requests.
// It doesn't shut anything down: the process ends as soon as the last request is answered.
type process struct {
	server   server
	listener net.Listener
	profile  *os.File
}

// handle answers one control request.
func (p *process) handle(op string, body json.RawMessage) (any, error) {
	switch op {
	case OpStart:
		return control.With(body, p.start)
	case OpUsage:
		return p.usage()
	case OpMemory:
		return p.memory()
	case OpAwait:
		return control.Do(body, func(w Waiting) error {
			return p.poll(func(poll *longPoll) { poll.await(w.Handlers) })
		})
	case OpRelease:
		return nil, p.poll(func(poll *longPoll) { poll.release() })
	case OpHold:
		return control.With(body, p.hold)
	case OpProfileStart:
		return control.Do(body, p.profileStart)
	case OpProfileStop:
		return nil, p.profileStop()
	}
	return nil, fmt.Errorf("unknown request %q", op)
}

// start starts the server.
func (p *process) start(spec Spec) (Started, error) {
	if p.listener != nil {
		return Started{}, errors.New("the server runs already")
	}
	srv, err := newServer(spec)
	if err != nil {
		return Started{}, err
	}
	if spec.Procs > 0 {
		runtime.GOMAXPROCS(spec.Procs) // before the engine counts them
	}
	l, err := listen(spec.Engine)
	if err != nil {
		return Started{}, err
	}
	p.server, p.listener = srv, l
	serve := func(l net.Listener) {
		fmt.Fprintf(os.Stderr, "serve: %v\n", srv.Serve(l))
		os.Exit(1)
	}
	go serve(l)
	addr := l.Addr().String()
	for i := 1; i < spec.Hosts; i++ {
		addr = nextHost(addr)
		l, err := net.Listen("tcp", addr)
		if err != nil {
			return Started{}, err
		}
		go serve(l)
	}
	if late, ok := srv.(lateServer); ok {
		<-late.ready()
	}
	if spec.Computing {
		for range runtime.GOMAXPROCS(0) {
			go compute()
		}
	}
	return Started{
		Addr:       l.Addr().String(),
		GOMAXPROCS: runtime.GOMAXPROCS(0),
		Loops:      loopStats(l).Loops,
	}, nil
}

// usage takes a snapshot of the process and of its engine.
func (p *process) usage() (Usage, error) {
	if s, ok := p.server.(foreignServer); ok {
		return s.usage()
	}
	u, err := usage()
	if err != nil {
		return Usage{}, err
	}
	stats := loopStats(p.listener)
	u.Wakeups, u.Events = stats.Wakeups, stats.Events
	for _, l := range stats.PerLoop {
		if l.Descriptors > 0 {
			u.Loops++
		}
	}
	if s, ok := p.server.(httpServer); ok {
		u.FastPath = s.adapted()
	}
	return u, nil
}

// memory measures the lasting memory of the process, or of a server that runs in other processes.
func (p *process) memory() (Memory, error) {
	if s, ok := p.server.(foreignServer); ok {
		return s.memory()
	}
	return memory()
}

// poll calls f with the handler whose requests wait, if the server has one.
func (p *process) poll(f func(*longPoll)) error {
	s, ok := p.server.(interface{ longPoll() *longPoll })
	if !ok || s.longPoll() == nil {
		return errors.New("the server has no handlers that wait")
	}
	f(s.longPoll())
	return nil
}

// hold leaves connections idle to the server's client: see holder.
func (p *process) hold(held Held) (Reused, error) {
	s, ok := p.server.(httpServer)
	if !ok || s.caller == nil || s.caller.idle == nil {
		return Reused{}, errors.New("the server has no client whose connections may be idle")
	}
	n, err := s.caller.idle.hold(held.Calls)
	return Reused{n}, err
}

// contentionRate is the share of waits for a lock that are in the profile: 1 of so many.
const contentionRate = 10

// profileStart starts a CPU profile of this process, written to a file, and one of its locks.
func (p *process) profileStart(to Profile) error {
	f, err := os.Create(to.Path)
	if err != nil {
		return err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		f.Close()
		return err
	}
	p.profile = f
	runtime.SetMutexProfileFraction(contentionRate)
	return nil
}

// locksPath is the file for the profile of the locks beside a CPU profile.
func locksPath(path string) string { return strings.TrimSuffix(path, ".pprof") + "_locks.pprof" }

// profileStop ends the profiles and writes the files.
func (p *process) profileStop() error {
	if p.profile == nil {
		return errors.New("no profile is being taken")
	}
	pprof.StopCPUProfile()
	runtime.SetMutexProfileFraction(0)
	path, err := p.profile.Name(), p.profile.Close()
	p.profile = nil
	locks, openErr := os.Create(locksPath(path))
	if openErr != nil {
		return errors.Join(err, openErr)
	}
	return errors.Join(err, pprof.Lookup("mutex").WriteTo(locks, 0), locks.Close())
}
