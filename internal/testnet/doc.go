// Package testnet holds the common tools of this project's tests: a TestMain that
// fails when goroutines, descriptors or buffers are left behind, loopback
// listeners and connected pairs on every network, TLS certificates made on the
// spot, hang detection, and helper processes.
//
// Only tests import it. It knows nothing of percore itself: every listener is
// passed in as a [ListenFunc], so that the same helper serves net and percore
// and so that any package of the module can use it without an import cycle.
package testnet
