package handover

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/percore/percore/handover/internal/systemd"
	"github.com/percore/percore/internal/seam"
	"github.com/percore/percore/loop"
)

// watch serves the service manager's watchdog until ctx ends.
func (r *run) watch(ctx context.Context) {
	var groups []*loop.Group
	for _, l := range r.listeners {
		groups = append(groups, (*loop.Group)(seam.GroupOf(l)))
	}
	r.manager.Watch(ctx, groups...)
}

// managerSockets are those that the service manager has opened, by the parts that they are for.
type managerSockets map[string][]*os.File

// sockets returns the sockets of the service manager. It leaves them alone if all parts have a Listener:
// the program may have opened those from them.
func (r *run) sockets() (managerSockets, error) {
	first := slices.IndexFunc(r.Parts, func(p Part) bool { return p.Listener == nil })
	if first < 0 {
		return nil, nil
	}
	all := make(managerSockets)
	unknown := ""
	for _, f := range systemd.Sockets() {
		name := f.Name()
		switch {
		case slices.ContainsFunc(r.Parts, func(p Part) bool { return p.Name == name && p.Listener == nil }):
		case name == "", name == "unknown", strings.HasSuffix(name, ".socket"): // the unit's
			name = r.Parts[first].Name
		default:
			unknown = name
		}
		all[name] = append(all[name], f)
	}
	if unknown != "" {
		all.close()
		return nil, fmt.Errorf("handover: systemd has opened a socket named %q, and no part with an Address has that Name", unknown)
	}
	return all, nil
}

// close closes the files. The listeners have copies of their own.
func (s managerSockets) close() {
	for _, files := range s {
		for _, f := range files {
			_ = f.Close()
		}
	}
}
