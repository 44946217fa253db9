// Package conformance holds the tests of percore's promise to behave like net, seen from the
// outside. It has no code of its own, only tests. Each is written once and runs over a table of
// engines: "net", which shows that the test itself is right, and "percore".
//
//   - nettest_test.go: golang.org/x/net/nettest, and the contract of a listener.
//   - diff_*_test.go: the differential suite. A script plays operations against
//     one engine and writes down everything a caller can see: counts, bytes,
//     error chains, error texts, socket options. The transcripts of net and
//     percore must be equal, line by line. See diff_test.go for how to write one.
//   - fuzz_test.go: random programs, which are scripts as well; those of
//     zerocopy_fuzz_test.go are compared with a slow simple model.
//   - nethttp_*_test.go: net/http's client against an unchanged http.Server.
//   - grpcinterop, a module of its own: gRPC's interop suite.
//   - hostile_test.go: peers that vanish, stall, flood and reset; processes
//     that run out of descriptors.
//   - stress_test.go: everything at once.
//
// The engine named percore is the default engine. TestVariants runs some of the suites on its other
// configurations, and PERCORE_TEST_VARIANT runs all of them on one.
//
// A test never asserts how fast something is; time limits only detect hangs. -short leaves out the
// heavy tests.
package conformance
