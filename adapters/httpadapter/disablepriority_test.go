//go:build go1.27

package httpadapter

import "net/http"

func disableClientPriority(srv *http.Server) { srv.DisableClientPriority = true }
