//go:build !percore_net

package client_test

import (
	"net/http"

	"github.com/percore/percore/adapters/httpadapter/internal/client"
	"github.com/percore/percore/adapters/httpadapter/internal/client/http2"
)

func init() {
	client.NewNamed = func(base *http.Transport) http.RoundTripper { return http2.New(base) }
}
