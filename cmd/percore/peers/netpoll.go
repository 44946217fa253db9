package main

import (
	"context"

	"github.com/cloudwego/netpoll"

	"github.com/percore/percore/cmd/percore/internal/bench/target"
)

func serveNetpoll(app *target.App, addr string) error {
	ln, err := netpoll.CreateListener("tcp", addr)
	if err != nil {
		return err
	}
	request := func(_ context.Context, c netpoll.Connection) error {
		r := c.Reader()
		defer r.Release()
		p, err := r.Peek(r.Len())
		if err != nil {
			return err
		}
		used, err := app.Data(netpollWriter{c.Writer()}, p)
		if err != nil {
			c.Close()
			return err
		}
		return r.Skip(used)
	}
	loop, err := netpoll.NewEventLoop(request,
		netpoll.WithOnConnect(func(ctx context.Context, c netpoll.Connection) context.Context {
			app.Join(c, func(p []byte) { netpollWriter{c.Writer()}.Write(p) })
			c.AddCloseCallback(func(netpoll.Connection) error {
				app.Leave(c)
				return nil
			})
			return ctx
		}))
	if err != nil {
		return err
	}
	return loop.Serve(ln)
}

// netpollWriter writes without a copy, unlike Connection.Write.
type netpollWriter struct{ netpoll.Writer }

func (w netpollWriter) Write(p []byte) (int, error) {
	if _, err := w.WriteBinary(p); err != nil {
		return 0, err
	}
	return len(p), w.Flush()
}
