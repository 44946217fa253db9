package main

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gorilla/websocket"
	"github.com/nats-io/nats.go"
)

const (
	presentMax = 50       // names that a member is told
	forgetAge  = 5 * tick // after which a process that doesn't report is taken for dead
)

// A report says who of a process' members are in a room. Each process publishes one per room and
// tick, and keeps the others'. Nothing stores them: who dies is forgotten.
type report struct {
	Process string   `json:"process"`
	Names   []string `json:"names"` // the first, sorted
	Count   int      `json:"count"`

	at time.Time // when it has come
}

// reportPresence publishes and gathers reports until the hub is closed.
func (h *hub) reportPresence() {
	reports := make(chan *nats.Msg, 1024) // NATS drops what comes while it is full; the next ones say the same
	subscription, err := h.backbone.nc.ChanSubscribe("presence.*", reports)
	if err != nil {
		return // the connection is closed
	}
	defer subscription.Unsubscribe()
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		select {
		case <-h.ctx.Done():
			return
		case msg := <-reports:
			h.takeReport(msg)
		case <-ticker.C:
			for _, r := range h.openRooms() {
				r.report()
				r.ping(time.Now())
			}
		}
	}
}

func (h *hub) openRooms() []*room {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.rooms))
}

// takeReport keeps another process' report.
func (h *hub) takeReport(msg *nats.Msg) {
	h.mu.Lock()
	r := h.rooms[strings.TrimPrefix(msg.Subject, "presence.")]
	h.mu.Unlock()
	reported := report{at: time.Now()}
	if r == nil || json.Unmarshal(msg.Data, &reported) != nil {
		return
	}
	r.mu.Lock()
	r.reports[reported.Process] = reported
	r.mu.Unlock()
}

// report publishes who is in the room, and tells the members if that has changed. The publisher
// gets its own report, too.
func (r *room) report() {
	r.mu.Lock()
	defer r.mu.Unlock()
	own := report{Process: r.hub.process, Count: len(r.members)}
	for m := range r.members {
		own.Names = append(own.Names, m.name)
	}
	own.Names = firstNames(own.Names)
	if data, err := json.Marshal(own); err == nil {
		r.hub.backbone.nc.Publish("presence."+r.name, data)
	}
	var all struct {
		Present []string `json:"present"`
		Count   int      `json:"count"`
	}
	for process, reported := range r.reports {
		if time.Since(reported.at) > forgetAge {
			delete(r.reports, process)
			continue
		}
		all.Present = append(all.Present, reported.Names...)
		all.Count += reported.Count
	}
	all.Present = firstNames(all.Present)
	text, err := json.Marshal(all)
	if err != nil || string(text) == r.presentText {
		return
	}
	if r.present, err = websocket.NewPreparedMessage(websocket.TextMessage, text); err != nil {
		return
	}
	r.presentText = string(text)
	for m := range r.members {
		m.tell()
	}
}

// firstNames returns the first of the names in their order.
func firstNames(names []string) []string {
	slices.Sort(names)
	return names[:min(len(names), presentMax)]
}

// presence returns what members are told of each other, or nil if nothing is known yet.
func (r *room) presence() *websocket.PreparedMessage {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.present
}

// tell has the member be told who is in the room.
func (m *member) tell() {
	m.mu.Lock()
	m.present = true
	m.mu.Unlock()
	m.wake()
}
