package main

import (
	"github.com/panjf2000/gnet/v2"
	"go.uber.org/zap"

	"github.com/percore/percore/cmd/percore/internal/bench/target"
)

func serveGnet(app *target.App, addr string) error {
	log, err := zap.NewProduction() // which is on standard error
	if err != nil {
		return err
	}
	return gnet.Run(&gnetHandler{app: app}, "tcp://"+addr, gnet.WithMulticore(true), gnet.WithLogger(log.Sugar()))
}

type gnetHandler struct {
	gnet.BuiltinEventEngine
	app *target.App
}

func (h *gnetHandler) OnOpen(c gnet.Conn) ([]byte, gnet.Action) {
	h.app.Join(c, func(p []byte) { c.AsyncWrite(p, nil) })
	return nil, gnet.None
}

func (h *gnetHandler) OnClose(c gnet.Conn, _ error) gnet.Action {
	h.app.Leave(c)
	return gnet.None
}

func (h *gnetHandler) OnTraffic(c gnet.Conn) gnet.Action {
	p, _ := c.Peek(-1)
	used, err := h.app.Data(c, p)
	if err != nil {
		return gnet.Close
	}
	c.Discard(used)
	return gnet.None
}
