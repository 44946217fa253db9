//go:build !percore_net

package client

import "net/http"

// NewNamed returns a Transport with the name that http.Client knows.
var NewNamed func(base *http.Transport) http.RoundTripper
