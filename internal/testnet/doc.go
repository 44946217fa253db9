// Package testnet holds the common tools of this project's tests: a TestMain that fails when
// goroutines, descriptors or buffers are left behind, loopback listeners and connected pairs on
// every network, TLS certificates generated on the fly, hang detection, and helper processes.
//
// Only tests import it. It doesn't import percore itself: callers pass every listener in as a
// [ListenFunc]. So the same helper works for net and percore, and any package of the module can use
// it without an import cycle.
package testnet
