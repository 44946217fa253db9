package conformance

import (
	"errors"
	"io"
	"net"
	"strings"
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

// sabotages are the wrong engines, with the scripts that must notice.
var sabotages = []struct {
	name   string
	engine sabotaged
	play   func(s *stage)
}{
	{
		"a wrapped end of stream",
		sabotaged{read: func(c *net.TCPConn, p []byte) (int, error) {
			n, err := c.Read(p)
			if err == io.EOF {
				err = &net.OpError{Op: "read", Net: "tcp", Err: err}
			}
			return n, err
		}},
		func(s *stage) {
			srv, cli := s.pair()
			cli.close()
			srv.read(1)
		},
	},
	{
		"an error without its OpError",
		sabotaged{read: func(c *net.TCPConn, p []byte) (int, error) {
			n, err := c.Read(p)
			var op *net.OpError
			if errors.As(err, &op) {
				err = op.Err
			}
			return n, err
		}},
		func(s *stage) {
			srv, cli := s.pair()
			cli.reset()
			srv.awaitBroken()
			srv.read(1)
		},
	},
	{
		"a wrong count",
		sabotaged{write: func(c *net.TCPConn, p []byte) (int, error) {
			n, err := c.Write(p)
			return n - 1, err
		}},
		func(s *stage) {
			srv, _ := s.pair()
			srv.write("text")
		},
	},
	{
		"a wrong byte",
		sabotaged{read: func(c *net.TCPConn, p []byte) (int, error) {
			n, err := c.Read(p)
			if n > 0 {
				p[n-1] ^= 1
			}
			return n, err
		}},
		func(s *stage) {
			srv, cli := s.pair()
			cli.writeBytes(pattern(100_000))
			cli.close()
			srv.readAll()
		},
	},
	{
		"a second Close that succeeds",
		sabotaged{close: func(c *net.TCPConn) error {
			c.Close()
			return nil
		}},
		func(s *stage) {
			srv, _ := s.pair()
			srv.close()
			srv.close()
		},
	},
	{
		"a deadline that is ignored",
		sabotaged{setDeadline: func(*net.TCPConn, time.Time) error { return nil }},
		func(s *stage) {
			srv, cli := s.pair()
			cli.write("data")
			srv.awaitReadable(4)
			srv.deadline("SetReadDeadline", longAgo)
			srv.read(4)
		},
	},
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

func TestSabotageIsNoticed(t *testing.T) {
	for _, sabotage := range sabotages {
		t.Run(sabotage.name, func(t *testing.T) {
			testnet.NoLeaks(t)
			wrong := engine{name: "sabotaged", listen: func(network, address string) (net.Listener, error) {
				ln, err := listenPlainTCP(network, address)
				if err != nil {
					return nil, err
				}
				return sabotagedListener{ln, sabotage.engine}, nil
			}}
			sc := script{name: sabotage.name, play: sabotage.play}
			r := &recorder{TB: t}
			compareEngines(r, sc, testnet.TCP4, netEngine, wrong)
			if len(r.failures) != 1 {
				t.Errorf("got failures %q, want one", r.failures)
			}
			r = &recorder{TB: t}
			compareEngines(r, sc, testnet.TCP4, netEngine, netEngine)
			if len(r.failures) != 0 {
				t.Errorf("net against itself: got failures %q, want none", r.failures)
			}
			r = &recorder{TB: t}
			sc.shows = []string{"what no transcript contains"}
			compareEngines(r, sc, testnet.TCP4, netEngine, netEngine)
			if len(r.failures) != 1 {
				t.Errorf("a script that does not show what it should: got failures %q, want one", r.failures)
			}
		})
	}
}
