package conformance

import (
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// ownClient is the way in which httpadapter's Transport serves the requests of the tests' clients.
const ownClient = "client"

// ownClientDiffer are the tests, or parts of tests, that fail with httpadapter's Transport in the
// place of net/http's. TestNetHTTPOwnTests checks that each of them does.
var ownClientDiffer = map[string]string{
	"TestCancelRequestMidBody/h2":                                      ownCancelError,
	"TestClientTimeoutCancel/h2":                                       ownCancelError,
	"TestCancelRequestMidBody/h1":                                      ownCancelError,
	"TestClientTimeoutCancel/h1":                                       ownCancelError,
	"TestTransportCancelRequestBeforeDo/h1/RequestCancel":              ownCancelError,
	"TestServerSetKeepAlivesEnabledClosesConns/h1":                     ownPool,
	"TestTransportCancelRequestBeforeDo/h2/RequestCancel":              ownCancelError,
	"TestTransportTraceGotConnH2IdleConns":                             ownPool,
	"TestTransportIdleCacheKeys/h1":                                    ownPool,
	"TestTransportMaxIdleConns/h1":                                     ownPool,
	"TestTransportMaxPerHostIdleConns/h1":                              ownPool,
	"TestTransportServerClosingUnexpectedly/h1":                        "closes the connections that net/http's pool has",
	"TestDontCacheBrokenHTTP2Conn/h2":                                  "expects no GotConn: net/http writes to a connection of HTTP/2 before that",
	"TestTransportCancelRequestBeforeResponseHeaders/h1/RequestCancel": ownCancelError,
	"TestRetryRequestsOnError/h1":                                      "logs a hook of net/http's that tells of retries",
}

// ownClientDiffers returns those of this version of Go.
func ownClientDiffers() map[string]string {
	all := maps.Clone(ownClientDiffer)
	if servesPriorities() { // Go 1.27
		all["TestTransportResponseBodyDrainDropsTrailers"] = "drains an answer with trailers: here they would go to the user"
	} else { // with Go 1.27 it has no HTTP/1, and is net/http's
		all["TestTransportDiscardsUnneededConns/h2"] = "counts calls of Close: crypto/tls makes one, too, when a dial is ended that is not needed"
	}
	return all
}

// ownClientHang are those that don't end, or not soon.
var ownClientHang = map[string]string{
	"TestReverseProxyCancellation":                                       ownCancelRequest,
	"TestTransportCancelRequestBeforeResponseHeaders/h1/TransportCancel": ownCancelRequest,
	"TestTransportAndServerSharedBodyRace":                               ownCancelRequest,
	"TestTransportMaxConnsPerHostDialCancellation":                       "waits for a hook of net/http's queue of dials",
	"TestTransportHeadChunkedResponse":                                   "waits for a hook of net/http's goroutine that reads",
	"TestIdleConnChannelLeak":                                            "waits for a hook of net/http's goroutine that reads",
	"TestTransportReqCancelerCleanupOnRequestBodyWriteError":             "waits until net/http has a request",
}

// Reasons that several tests share.
const (
	ownCancelError   = "compares an error with one of net/http's that other packages can't have; the text is the same"
	ownCancelRequest = "calls http.Transport.CancelRequest, which has no effect on requests that percore serves"
	ownPool          = "counts the idle connections that net/http's pool has"
)

// changeTransport makes percoretest serve the requests of the http.Transport in dir, which is net/http's
// directory.
func changeTransport(t *testing.T, dir string) {
	t.Helper()
	changeFile(t, filepath.Join(dir, "roundtrip.go"), func(text string) string {
		return insertAt(t, text, `func \(t \*Transport\) RoundTrip\(req \*Request\) \(\*Response, error\) \{\n`,
			"\tif t != nil && PercoreRoundTrip != nil {\n"+
				"\t\tif resp, err, served := PercoreRoundTrip(t, req); served {\n\t\t\treturn resp, err\n\t\t}\n\t}\n") +
			"\nvar PercoreRoundTrip func(t *Transport, req *Request) (resp *Response, err error, served bool)\n" +
			"var PercoreCloseIdle func(*Transport)\n"
	})
	changeFile(t, filepath.Join(dir, "transport.go"), func(text string) string {
		return insertAt(t, text, `func \(t \*Transport\) CloseIdleConnections\(\) \{\n`,
			"\tif PercoreCloseIdle != nil {\n\t\tPercoreCloseIdle(t)\n\t}\n")
	})
}

// changeClient changes the client in the vendor directory of src. It serves the requests of x/net's
// Transport as well.
func changeClient(t *testing.T, src string) {
	t.Helper()
	adapter := filepath.Join(src, "vendor", "github.com", "percore", "percore", "adapters", "httpadapter")
	top, dir := filepath.Join(adapter, "http2"), filepath.Join(adapter, "internal", "client")
	changeFile(t, filepath.Join(top, "protocols.go"), func(text string) string { // which the tests configure by themselves
		return strings.Replace(text, "again.TLSNextProto != nil", `again.TLSNextProto != nil && again.TLSNextProto["h2"] == nil`, 1)
	})
	changeFile(t, filepath.Join(dir, "streams", "stream.go"), func(text string) string {
		return insertAt(t, text, `\tx.BodyRead = x.Body != nil\n`, "\trequest.PercoreCallOf(x.Req).Opened(s.s.ID())\n")
	})
	changeFile(t, filepath.Join(top, "call.go"), func(text string) string {
		return insertAt(t, text, `func \(c \*call\) retryShared\(err error, retries int\) error \{\n`, "\tif request.PercoreCallOf(c.Req).Once {\n\t\treturn err\n\t}\n")
	})
	changeFile(t, filepath.Join(dir, "streams", "errors.go"), func(text string) string {
		return text + "\nvar PercoreUnusable = errSharedUnusable\n"
	})
	testnet.CopyFile(t, "testdata/percorerequest.go.txt", filepath.Join(dir, "request", "percorerequest.go"))
	testnet.CopyFile(t, "testdata/percoreclient.go.txt", filepath.Join(top, "percoreclient.go"))
}

// copyChunks makes percore's packages in the vendor directory of src read chunks with a copy of
// net/http's reader. They use net/http/httputil otherwise, whose tests would import themselves.
func copyChunks(t *testing.T, src string) {
	t.Helper()
	copied := filepath.Join(src, "percorechunks", "chunked.go")
	testnet.CopyFile(t, filepath.Join(src, "net", "http", "internal", "chunked.go"), copied)
	changeFile(t, copied, func(text string) string {
		return strings.Replace(text, "package internal\n", "package percorechunks\n", 1)
	})
	dir := filepath.Join(src, "vendor", "github.com", "percore", "percore", "adapters", "httpadapter", "internal")
	err := filepath.WalkDir(dir, func(name string, _ fs.DirEntry, err error) error {
		if err == nil && strings.HasSuffix(name, ".go") {
			changeFile(t, name, func(text string) string {
				return strings.Replace(text, "\t\"net/http/httputil\"\n", "\thttputil \"percorechunks\"\n", 1)
			})
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// clientArgs are the arguments that select the tests that can pass with the client.
func (r ownRun) clientArgs() []string {
	var args, skip []string
	differ, others := ownClientDiffers(), ownClientHang
	if r.pkg == ownXNet {
		differ, others = ownXNetClientDiffers(), ownXNetClientOthers
		args = []string{"-test.run=^(" + strings.Join(xNetClientTests(r.T, r.dir), "|") + ")$"}
	}
	for _, names := range []map[string]string{differ, others} {
		for name := range names {
			skip = append(skip, ownPattern(name))
		}
	}
	return append(args, "-test.skip="+strings.Join(skip, "|"))
}

// ownPattern is a pattern that selects a test, or a part of one.
func ownPattern(name string) string {
	parts := strings.Split(name, "/")
	for i, part := range parts {
		parts[i] = "^" + regexp.QuoteMeta(part) + "$"
	}
	return strings.Join(parts, "/")
}

var ownRequests = regexp.MustCompile(`(?m)^percore: (\d+) requests by the client, (\d+) left to net/http$`)

// checkClient checks after a run that the client has served requests, and that the tests that differ do
// fail.
func (r ownRun) checkClient(out string) {
	if r.way != ownClient {
		return
	}
	counts := ownRequests.FindStringSubmatch(out)
	if counts == nil {
		r.Fatalf("the tests did not print their requests\n%s", out)
	}
	r.Log(counts[0])
	all, _ := strconv.Atoi(counts[1])
	left, _ := strconv.Atoi(counts[2])
	least, differ := 1, map[string]string(nil)
	switch r.pkg {
	case "net/http":
		least, differ = 2200, ownClientDiffers()
	case "net/http/httptest":
		least = 0
	case ownXNet:
		least, differ = 250, ownXNetClientDiffers()
	}
	if served := all - left; served < least {
		r.Errorf("got %d requests that the client has served, want those of hundreds of tests", served)
	}
	for _, name := range slices.Sorted(maps.Keys(differ)) {
		const runs = 20 // some have a chance to pass
		for n := 1; ; n++ {
			out, err := r.run("-test.v", "-test.short", "-test.run="+ownPattern(name))
			if err != nil {
				break
			}
			if n == runs {
				r.Errorf("%s passes: take it off the list of those that differ\n%s", name, out)
				break
			}
		}
	}
}
