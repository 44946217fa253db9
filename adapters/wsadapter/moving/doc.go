// Package moving hands conversations of package wsadapter over to the process that replaces this one
// (package handover). The peers notice nothing:
//
//	group := moving.NewGroup(&conns, "chat", h.restore) // handover.Conns, also Service.Conns
//
//	up := group.NewUpgrade(w, r) // in place of wsadapter.NewUpgrade(w)
//
//	func (c *client) Save() ([]byte, error) { return []byte(c.room), nil }
//
//	func (h *hub) restore(up *wsadapter.Upgrade, r *http.Request, state []byte) error {
//		ws, err := h.upgrader.Upgrade(up, r, nil) // the client doesn't get this answer
//		if err == nil {
//			wsadapter.Start(up.Conn(), &client{hub: h, ws: ws, room: string(state)})
//		}
//		return err
//	}
//
// Conversations over TLS stay, and so do conversations that [Saver] and [Restorer] rule out. They
// get a close message with code 1012 when the server shuts down, as does every conversation of a
// Group when there is no successor. The folder examples/websocket has a whole program.
package moving
