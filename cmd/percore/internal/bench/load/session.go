package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// session is one worker's conversation with the target, usually over one connection. One goroutine
// at a time uses it.
type session interface {
	// op performs one operation and blocks until it is answered.
	op() error

	// setDeadline makes an operation that is still open at t fail with os.ErrDeadlineExceeded. It
	// is called once per phase: a deadline for each operation would cost the generator more than
	// the rest of its bookkeeping.
	setDeadline(t time.Time)

	close()
}

// multiplexer is a session that keeps several operations open at once.
type multiplexer interface {
	session

	// loop performs operations until stop reports true, one at least, and calls record with the
	// time that each took. It returns when all have ended.
	loop(stop func() bool, record func(time.Duration)) error
}

// asker is a session whose requests may be left open.
type asker interface {
	session

	// send sends requests, and receive reads their answers.
	send() error
	receive() error
}

// opener returns session number i of a job.
type opener func(i int) (session, error)

// newOpener returns the opener for the protocol that the job's server speaks.
func newOpener(job *scenario.Scenario) opener {
	app := job.App
	if app == scenario.AppProxyTCP {
		app = job.Backend.App
	}
	switch app {
	case scenario.AppEcho, scenario.AppBuffers, scenario.AppRESP:
		return exchanges(job, app)
	case scenario.AppBroadcast:
		return broadcasts(job)
	case scenario.AppGRPC, scenario.AppMethod:
		return grpcSessions(job)
	}
	switch {
	case job.HTTP2:
		return http2Sessions(job)
	case job.Close:
		return httpOnces(job)
	}
	return httpSessions(job)
}

func open(job *scenario.Scenario) ([]session, error) {
	opener := newOpener(job)
	sessions := make([]session, job.Workers())
	err := parallel(len(sessions), func(i int) error {
		s, err := opener(i)
		if err != nil {
			return fmt.Errorf("open connection %d of %d: %w", i+1, len(sessions), err)
		}
		sessions[i] = s
		return nil
	})
	if err != nil {
		closeAll(sessions)
		return nil, err
	}
	return sessions, nil
}

// each calls f for every session, a few at a time. If f fails, deed is for the error message.
func each(sessions []session, deed string, f func(session) error) error {
	return parallel(len(sessions), func(i int) error {
		sessions[i].setDeadline(time.Now().Add(dialTimeout))
		if err := f(sessions[i]); err != nil {
			return fmt.Errorf("%s %d of %d: %w", deed, i+1, len(sessions), err)
		}
		sessions[i].setDeadline(time.Time{})
		return nil
	})
}

// closeAll closes the sessions. Some may be missing.
func closeAll(sessions []session) {
	for _, s := range sessions {
		if s != nil {
			s.close()
		}
	}
}

// parallelMax limits how many connections are being opened at once. It is enough to keep the server
// busy, and far below the backlog of any listener.
const parallelMax = 64

// parallel calls f for 0 to n-1, a few at a time, and returns the first error. After one it begins no
// more.
func parallel(n int, f func(i int) error) error {
	all, failed := errgroup.WithContext(context.Background())
	all.SetLimit(parallelMax)
	for i := 0; i < n && failed.Err() == nil; i++ {
		all.Go(func() error { return f(i) })
	}
	return all.Wait()
}

// dialTimeout limits one connect, and one use of a connection outside a phase. A running server on
// loopback answers at once, but thousands of clients may be connecting.
const dialTimeout = 10 * time.Second

func dial(addr string) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", addr, dialTimeout)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return c, nil
}

// unexpectedEOF says that an end of stream came too early.
func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
