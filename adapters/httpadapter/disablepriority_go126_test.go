//go:build !go1.27

package httpadapter

import "net/http"

func disableClientPriority(*http.Server) {} // which no server serves
