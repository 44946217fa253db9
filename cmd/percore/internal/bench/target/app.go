package target

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/tidwall/redcon"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

// An App answers bytes with bytes: AppEcho, AppBroadcast or AppRESP. It is the same for blocking code
// and for the event handlers of all libraries, so that only their connections differ. It is safe for
// concurrent use.
type App struct {
	kind string

	// Broadcast sends what AppBroadcast has received to all connections: to those of Join, unless a
	// library can do that itself.
	Broadcast func(p []byte)

	values  sync.Map  // AppRESP's, []byte by string
	answers sync.Pool // *[]byte, for AppRESP

	mu   sync.Mutex           // held while AppBroadcast sends, too: a connection has one writer at a time
	send map[any]func([]byte) // to each connection; guarded by mu
}

// NewApp returns the app of a scenario.
func NewApp(kind string) *App {
	a := &App{kind: kind, send: make(map[any]func([]byte))}
	a.answers.New = func() any { return new([]byte) }
	a.Broadcast = func(p []byte) {
		p = bytes.Clone(p) // a library may keep it
		for _, send := range a.send {
			send(p)
		}
	}
	return a
}

// Join adds a connection, and a function that sends to it, which may keep what it sends.
func (a *App) Join(c any, send func(p []byte)) {
	if a.kind == scenario.AppBroadcast {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.send[c] = send
	}
}

// Leave removes a connection.
func (a *App) Leave(c any) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.send, c)
}

// Data answers what a connection has received, and returns how many bytes it has used: the rest must
// come again, with more. Neither it nor c keeps p. After an error the connection is of no use.
func (a *App) Data(c io.Writer, p []byte) (used int, err error) {
	switch a.kind {
	case scenario.AppEcho:
		_, err = c.Write(p)
		return len(p), err
	case scenario.AppBroadcast:
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(p) == scenario.Greeting {
			_, err = c.Write(p)
		} else {
			a.Broadcast(p)
		}
		return len(p), err
	}
	buf := a.answers.Get().(*[]byte)
	defer a.answers.Put(buf)
	if *buf, used, err = a.commands((*buf)[:0], p); err == nil && len(*buf) > 0 {
		_, err = c.Write(*buf)
	}
	return used, err
}

var errCommand = errors.New("the command is neither GET nor SET")

// commands runs the complete commands in p for a key-value store that speaks a part of RESP, the
// protocol of Redis. It appends the answers to answers and returns how many bytes the commands had.
func (a *App) commands(answers, p []byte) (_ []byte, used int, err error) {
	var args [3][]byte
	for rest := p; ; {
		complete, args, _, after, err := redcon.ReadNextCommand(rest, args[:0])
		if err != nil || !complete {
			return answers, len(p) - len(rest), err
		}
		switch {
		case len(args) == 2 && string(args[0]) == "GET":
			if value, ok := a.values.Load(string(args[1])); ok {
				answers = redcon.AppendBulk(answers, value.([]byte))
			} else {
				answers = redcon.AppendNull(answers)
			}
		case len(args) == 3 && string(args[0]) == "SET":
			a.values.Store(string(args[1]), bytes.Clone(args[2]))
			answers = redcon.AppendOK(answers)
		default:
			return answers, len(p) - len(rest), errCommand
		}
		rest = after
	}
}

func (a *App) serve(c net.Conn) error {
	a.Join(c, func(p []byte) { c.Write(p) }) // if this fails, the next read of c does
	defer a.Leave(c)
	buf, kept := make([]byte, 4096), 0
	for {
		n, err := c.Read(buf[kept:])
		if err != nil {
			return err
		}
		kept += n
		used, err := a.Data(c, buf[:kept])
		if err != nil {
			return err
		}
		if kept = copy(buf, buf[used:kept]); kept == len(buf) {
			return io.ErrShortBuffer
		}
	}
}
