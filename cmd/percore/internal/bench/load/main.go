package load

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/percore/percore/cmd/percore/internal/bench/control"
)

// Main runs a load process. It serves control requests from r and answers on w until r ends. It
// returns the exit status of the process.
func Main(r io.Reader, w io.Writer) int {
	p := &process{}
	defer p.close()
	if err := control.Serve(r, w, p.handle); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// process is the state of a load process. One goroutine uses it, which serves control requests.
type process struct {
	busy []session // OpRun drives these
	idle []session // left alone
	open []session // with a request that is not answered yet
}

// handle answers one control request.
func (p *process) handle(op string, body json.RawMessage) (any, error) {
	switch op {
	case OpPrepare:
		return control.Do(body, p.prepare)
	case OpRun:
		return control.With(body, p.run)
	case OpIdle:
		return control.Do(body, p.openIdle)
	case OpRevive:
		return nil, useOnce(p.idle)
	case OpAsk:
		return control.Do(body, p.ask)
	case OpAnswers:
		return nil, readAnswers(p.open)
	}
	return nil, fmt.Errorf("unknown request %q", op)
}

// prepare opens the sessions that OpRun drives.
func (p *process) prepare(job Job) error {
	if p.busy != nil {
		return errors.New("prepared already")
	}
	var err error
	p.busy, err = open(job)
	return err
}

// run drives the sessions for one phase.
func (p *process) run(ph Phase) (Result, error) {
	if len(p.busy) == 0 {
		return Result{}, errors.New("run before prepare")
	}
	res, err := run(p.busy, ph)
	if ph.InTurn && err == nil {
		next := int(res.Ops % int64(len(p.busy)))
		p.busy = slices.Concat(p.busy[next:], p.busy[:next])
	}
	return res, err
}

// openIdle opens sessions, uses each once and leaves them open.
func (p *process) openIdle(job Job) error {
	sessions, err := open(job)
	if err != nil {
		return err
	}
	p.idle = append(p.idle, sessions...)
	return useOnce(sessions)
}

// ask opens sessions and sends a request on each.
func (p *process) ask(job Job) error {
	if !slices.Contains([]string{KindHTTP, KindHTTP2, KindGRPCWatch}, job.Kind) {
		return fmt.Errorf("requests of kind %q can't be left open: want %q, %q or %q", job.Kind, KindHTTP, KindHTTP2, KindGRPCWatch)
	}
	sessions, err := open(job)
	if err != nil {
		return err
	}
	p.open = append(p.open, sessions...)
	return sendRequests(sessions)
}

// close closes all connections.
func (p *process) close() {
	closeAll(p.busy)
	closeAll(p.idle)
	closeAll(p.open)
}
