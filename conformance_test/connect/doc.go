// Package connect runs the conformance suite of Connect, gRPC and gRPC-Web against percore's servers
// and client. It exists for its tests, and has a go.mod of its own for what the suite depends on.
package connect
