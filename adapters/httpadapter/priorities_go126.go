//go:build !go1.27

package httpadapter

import (
	"net/http"

	"github.com/percore/percore/adapters/h2"
)

// prioritiesOf returns what srv does with the priorities of RFC 9218: net/http serves them since Go
// 1.27, and can be told not to.
func prioritiesOf(*http.Server) h2.Priorities { return h2.UnknownPriorities }
