package main

import (
	"bytes"
	"os"
	"runtime"

	"github.com/lesismal/nbio"
	"github.com/lesismal/nbio/logging"

	"github.com/percore/percore/cmd/percore/internal/bench/target"
)

func serveNbio(app *target.App, addr string) error {
	logging.Output = os.Stderr // standard output is the harness's
	engine := nbio.NewEngine(nbio.Config{Network: "tcp", Addrs: []string{addr}, NPoller: runtime.GOMAXPROCS(0)})
	engine.OnOpen(func(c *nbio.Conn) { app.Join(c, func(p []byte) { c.Write(p) }) })
	engine.OnClose(func(c *nbio.Conn, _ error) { app.Leave(c) })
	engine.OnData(func(c *nbio.Conn, p []byte) {
		kept, _ := c.Session().([]byte) // nbio keeps nothing of what it gives
		if kept != nil {
			p = append(kept, p...)
		}
		used, err := app.Data(c, p)
		switch {
		case err != nil:
			c.Close()
		case used < len(p):
			c.SetSession(bytes.Clone(p[used:]))
		case kept != nil:
			c.SetSession(nil)
		}
	})
	if err := engine.Start(); err != nil {
		return err
	}
	select {}
}
