package request

import (
	"io"
	"time"
)

// probeTime is how long a body is waited for: net/http's time.
const probeTime = 200 * time.Millisecond

// Probe checks whether a body of unknown length has a byte, if Probes is set: an empty body in chunks
// confuses servers. It assumes one after probeTime, or if the request ends.
func (r *Request) Probe() {
	if _, again := r.Body.(*probed); again || !r.Probes {
		return
	}
	p := &probed{ReadCloser: r.Body, done: make(chan struct{})}
	r.Body, r.Length = p, -1
	go p.probe()
	timer := time.NewTimer(probeTime)
	defer timer.Stop()
	select {
	case <-p.done:
		if p.first == nil && p.err == io.EOF {
			r.Length = 0
		}
	case <-timer.C:
	case <-r.Ctx.Done():
	}
}

// probed is a body whose first byte a goroutine reads.
type probed struct {
	io.ReadCloser

	done  chan struct{} // closed when probe ends
	first []byte        // valid then: what it has read, and no Read has
	err   error         // likewise: behind first
}

func (p *probed) probe() {
	defer close(p.done)
	p.err = ErrBodyUnread // unless the read ends the goroutine
	var first [1]byte
	var n int
	n, p.err = p.ReadCloser.Read(first[:])
	p.first = append(p.first, first[:min(max(n, 0), 1)]...)
}

// Read returns the first byte by itself, as net/http does.
func (p *probed) Read(b []byte) (int, error) {
	<-p.done
	switch {
	case len(p.first) > 0:
		n := copy(b, p.first)
		p.first = p.first[n:]
		return n, nil
	case p.err != nil:
		return 0, p.err
	}
	return p.ReadCloser.Read(b)
}
