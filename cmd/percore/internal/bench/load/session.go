package load

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
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

// newOpener returns the opener for the kind of load that job names.
func newOpener(job Job) (opener, error) {
	switch job.Kind {
	case KindHTTP:
		return httpOpener(job), nil
	case KindHTTP2:
		return http2Opener(job), nil
	case KindHTTPClose:
		return httpCloseOpener(job), nil
	case KindEcho:
		return echoOpener(job)
	case KindBroadcast, KindEvents:
		return broadcastOpener(job)
	case KindRESP:
		return respOpener(job)
	case KindBurst:
		return burstOpener(job)
	case KindGRPCUnary, KindGRPCMethod, KindGRPCStream, KindGRPCWatch:
		return grpcOpener(job), nil
	}
	return nil, fmt.Errorf("unknown kind of load %q", job.Kind)
}

// parallelMax limits how many connections are being opened at once. It is enough to keep the server
// busy, and far below the backlog of any listener.
const parallelMax = 64

// open opens all sessions of a job.
func open(job Job) ([]session, error) {
	if job.Conns <= 0 {
		return nil, errors.New("a load needs at least one connection")
	}
	opener, err := newOpener(job)
	if err != nil {
		return nil, err
	}
	sessions := make([]session, job.workers())
	err = parallel(len(sessions), func(i int) error {
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

// useOnce performs one operation in every session.
func useOnce(sessions []session) error {
	return each(sessions, "use idle connection", session.op)
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

// sendRequests sends the requests of every session, which must be an asker, and doesn't read
// answers.
func sendRequests(sessions []session) error {
	return each(sessions, "send request", func(s session) error { return s.(asker).send() })
}

// readAnswers reads the answers to the requests that sendRequests has sent.
func readAnswers(sessions []session) error {
	return each(sessions, "read answer", func(s session) error { return s.(asker).receive() })
}

// closeAll closes the sessions. Some may be missing.
func closeAll(sessions []session) {
	for _, s := range sessions {
		if s != nil {
			s.close()
		}
	}
}

// parallel calls f for 0 to n-1, a few at a time, until all are done or one
// fails; it returns the first error.
func parallel(n int, f func(i int) error) error {
	var (
		wg    sync.WaitGroup
		mu    sync.Mutex
		next  int   // guarded by mu
		first error // guarded by mu
	)
	take := func() (int, bool) {
		mu.Lock()
		defer mu.Unlock()
		next++
		return next - 1, next <= n && first == nil
	}
	for range min(n, parallelMax) {
		wg.Go(func() {
			for i, ok := take(); ok; i, ok = take() {
				if err := f(i); err != nil {
					mu.Lock()
					if first == nil {
						first = err
					}
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return first
}

// dialTimeout limits one connect, and one use of a connection outside a phase. A running server on
// loopback answers at once, but thousands of clients may be connecting.
const dialTimeout = 10 * time.Second

// dial connects to addr.
func dial(addr string) (net.Conn, error) {
	c, err := net.DialTimeout("tcp", addr, dialTimeout)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return c, nil
}
