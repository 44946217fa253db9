package conformance

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/percore/percore/internal/testnet"
)

// These tests test the differential suite itself. They give it engines that are each wrong in one
// small way, which it must notice.

// sabotaged is a net connection with one method replaced.
type sabotaged struct {
	*net.TCPConn
	read        func(c *net.TCPConn, p []byte) (int, error)
	write       func(c *net.TCPConn, p []byte) (int, error)
	close       func(c *net.TCPConn) error
	setDeadline func(c *net.TCPConn, t time.Time) error
}

func (s sabotaged) Read(p []byte) (int, error) {
	if s.read != nil {
		return s.read(s.TCPConn, p)
	}
	return s.TCPConn.Read(p)
}

func (s sabotaged) Write(p []byte) (int, error) {
	if s.write != nil {
		return s.write(s.TCPConn, p)
	}
	return s.TCPConn.Write(p)
}

func (s sabotaged) Close() error {
	if s.close != nil {
		return s.close(s.TCPConn)
	}
	return s.TCPConn.Close()
}

func (s sabotaged) SetReadDeadline(t time.Time) error {
	if s.setDeadline != nil {
		return s.setDeadline(s.TCPConn, t)
	}
	return s.TCPConn.SetReadDeadline(t)
}

// sabotagedListener wraps each connection it accepts.
type sabotagedListener struct {
	net.Listener
	template sabotaged
}

func (l sabotagedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	s := l.template
	s.TCPConn = c.(*net.TCPConn)
	return s, nil
}

// sabotages are the wrong engines.
var sabotages = map[string]sabotaged{
	"a wrapped end of stream": {read: func(c *net.TCPConn, p []byte) (int, error) {
		n, err := c.Read(p)
		if err == io.EOF {
			err = &net.OpError{Op: "read", Net: "tcp", Err: err}
		}
		return n, err
	}},
	"an error without its OpError": {read: func(c *net.TCPConn, p []byte) (int, error) {
		n, err := c.Read(p)
		var op *net.OpError
		if errors.As(err, &op) {
			err = op.Err
		}
		return n, err
	}},
	"a reset taken for the end": {read: func(c *net.TCPConn, p []byte) (int, error) {
		n, err := c.Read(p)
		if errors.Is(err, syscall.ECONNRESET) {
			err = io.EOF
		}
		return n, err
	}},
	"a read of nothing that never fails": {read: func(c *net.TCPConn, p []byte) (int, error) {
		if len(p) == 0 {
			return 0, nil
		}
		return c.Read(p)
	}},
	"a wrong count": {write: func(c *net.TCPConn, p []byte) (int, error) {
		n, err := c.Write(p)
		return max(0, n-1), err
	}},
	"a wrong byte": {read: func(c *net.TCPConn, p []byte) (int, error) {
		n, err := c.Read(p)
		if n > 0 {
			p[n-1] ^= 1
		}
		return n, err
	}},
	"a second Close that succeeds": {close: func(c *net.TCPConn) error {
		c.Close()
		return nil
	}},
	"a deadline in the past that passes soon": {setDeadline: func(c *net.TCPConn, t time.Time) error {
		if t == longAgo {
			t = time.Now().Add(5 * time.Millisecond)
		}
		return c.SetReadDeadline(t)
	}},
}

// recorder is a testing.TB that records failures without failing the test.
type recorder struct {
	testing.TB
	failures []string
}

func (r *recorder) Errorf(format string, args ...any) {
	r.failures = append(r.failures, strings.TrimSpace(format))
}
func (r *recorder) Failed() bool { return false }

// TestSabotageIsNoticed: of some random programs, at least one goes differently on a wrong engine, and
// none on net itself.
func TestSabotageIsNoticed(t *testing.T) {
	compare := func(t *testing.T, sc script, e engine) (failures []string) {
		r := &recorder{TB: t}
		compareEngines(r, sc, testnet.TCP4, netEngine, e)
		return r.failures
	}
	for name, template := range sabotages {
		t.Run(name, func(t *testing.T) {
			testnet.NoLeaks(t)
			wrong := engine{name: "sabotaged", listen: func(network, address string) (net.Listener, error) {
				ln, err := listenPlainTCP(network, address)
				if err != nil {
					return nil, err
				}
				return sabotagedListener{ln, template}, nil
			}}
			noticed := 0
			for seed := range uint64(100) {
				sc := script{play: func(s *stage) { playProgram(s, randomProgram(seed)[1:]) }}
				noticed += len(compare(t, sc, wrong))
				if failures := compare(t, sc, netEngine); len(failures) != 0 {
					t.Errorf("net against itself: got failures %q, want none", failures)
				}
			}
			if noticed == 0 {
				t.Error("no program has noticed")
			}
			t.Logf("%d programs have noticed", noticed)
		})
	}
	empty := script{shows: []string{"what no transcript contains"}, play: func(*stage) {}}
	if failures := compare(t, empty, netEngine); len(failures) != 1 {
		t.Errorf("a script that does not show what it should: got failures %q, want one", failures)
	}
}
