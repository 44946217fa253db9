//go:build go1.27

package httpadapter

import (
	"net/http"

	"github.com/percore/percore/adapters/h2"
)

// prioritiesOf returns what srv does with the priorities of RFC 9218.
func prioritiesOf(srv *http.Server) h2.Priorities {
	if srv.DisableClientPriority {
		return h2.IgnorePriorities
	}
	return h2.ServePriorities
}
