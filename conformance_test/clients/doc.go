// Package clients runs HTTP/2 and gRPC clients that are not written in Go against percore's servers:
// gRPC's C core with Python and C++, grpc-js, Connect's client for Node, Node's http2, nghttp2,
// curl, and h2 and httpx for Python. Each plays the same scenarios, in cleartext, over TLS and on a
// unix socket, first to grpc-go's or net/http's server: whatever a client sees there, it must see
// from percore's.
//
// The clients are in the folder programs. The script install, in this folder, installs what they
// need, except Go:
//
//	bash conformance_test/clients/install
package clients
