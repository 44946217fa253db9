//go:build !percore_net

package client_test

import (
	"net/http"

	"github.com/percore/percore/adapters/httpadapter/http2"
	"github.com/percore/percore/adapters/httpadapter/internal/client"
)

func init() {
	client.NewNamed = func(base *http.Transport) http.RoundTripper { return http2.New(base) }
}
