package conformance

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

// ownXNetClientDiffer are the tests of x/net's Transport, or parts of them, that fail with httpadapter's
// in its place. TestNetHTTPOwnTests checks that each of them does.
var ownXNetClientDiffer = map[string]string{
	"TestAPITransportCloseIdleConnections":      ownGoesAway,
	"TestAPITransportConnectionClose":           ownGoesAway,
	"TestAPITransportIdleConnTimeout/xNetHTTP2": ownGoesAway,
	"TestTransportWindowUpdateBeyondLimit":      ownGoesAway,

	"TestAPITransportCoalescedDial/success":             ownDials,
	"TestAPITransportCoalescedDial/multiple_targets":    ownDials,
	"TestAPITransportCoalescedDial/failure":             ownDials,
	"TestAPITransportCoalescedDial/leader_got_bad_conn": ownDials,

	"TestAPITransportCountError":                        "sets CountError: percore leaves these requests to net/http",
	"TestExtendedConnectClientWithServerSupport":        "has CONNECT: percore leaves it to net/http",
	"TestExtendedConnectClientWithoutServerSupport":     "has CONNECT: percore leaves it to net/http",
	"TestTransportFailsOnInvalidHeadersAndTrailers":     "has fields that are not valid: percore leaves them to net/http, which has other words for that",
	"TestAPITransportIDNA":                              "has names that percore leaves to net/http, which dials one of them in another form",
	"TestTransportSettingsFlowControlUpdateBeyondLimit": "wants the error when the next DATA is sent; here it comes at once",
	"TestTransportRoundtripCloseOnWriteError":           "wants a call to fail when nothing can be sent any more; percore reads on for a second, for an answer that is there",
	"TestTransportUnknown1xx":                           "sets a hook of x/net's",
	"TestRoundTripDoesntConsumeRequestBodyEarly":        "wants the error of a connection that has ended; percore dials another one",

	"TestTransportInvalidTrailer_BinaryFieldValue":  ownCauses,
	"TestTransportInvalidTrailer_Capital1":          ownCauses,
	"TestTransportInvalidTrailer_Capital2":          ownCauses,
	"TestTransportInvalidTrailer_EmptyFieldName":    ownCauses,
	"TestTransportInvalidTrailer_Pseudo1":           ownCauses,
	"TestTransportInvalidTrailer_Pseudo2":           ownCauses,
	"TestTransportReturnsErrorOnBadResponseHeaders": ownCauses,
}

// ownXNetClientDiffer126 are those that fail with Go 1.26 besides: percore does what net/http does.
var ownXNetClientDiffer126 = map[string]string{
	"TestTransportNoRetryOnStreamProtocolError": "wants no second attempt after PROTOCOL_ERROR, as since Go 1.27",
}

// ownXNetClientDiffers returns the tests that fail with this version of Go.
func ownXNetClientDiffers() map[string]string {
	differ := maps.Clone(ownXNetClientDiffer)
	if !servesPriorities() { // which came with Go 1.27, too
		maps.Copy(differ, ownXNetClientDiffer126)
	}
	return differ
}

// ownXNetClientOthers are those that have nothing to do with httpadapter's Transport, or can't be run.
var ownXNetClientOthers = map[string]string{
	"TestAPIClientConnPing":                       ownClientConn,
	"TestAPIClientConnShutdownFailure":            ownClientConn,
	"TestAPIClientConnShutdownSuccess":            ownClientConn,
	"TestAPITransportClientConnDoNotReuse":        ownClientConn,
	"TestAPITransportClientConnPending":           ownClientConn,
	"TestAPITransportClientConnReserveNewRequest": ownClientConn,
	"TestAPITransportNewClientConn":               ownClientConn,
	"TestAPITransportSettingsRoundTripRace":       ownClientConn,
	"TestClientConnCloseAtBody":                   ownClientConn,
	"TestClientConnCloseAtHeaders":                ownClientConn,
	"TestClientConnPing":                          ownClientConn,
	"TestClientConnReservations":                  ownClientConn,
	"TestClientConnShutdown":                      ownClientConn,
	"TestClientConnShutdownCancel":                ownClientConn,
	"TestIssue66763Race":                          ownClientConn,
	"TestTransportNewClientConnCloseOnWriteError": ownClientConn,

	"TestTransportMaxDecoderHeaderTableSize":              ownLooks,
	"TestTransportMaxEncoderHeaderTableSize":              ownLooks,
	"TestTransportReturnsDataPaddingFlowControl":          ownLooks,
	"TestTransportReturnsUnusedFlowControlMultipleWrites": ownLooks,
	"TestTransportReturnsUnusedFlowControlSingleWrite":    ownLooks,

	"TestTransportTLSNextProtoConnIdleTimoutBeforeUse":    ownNextProto,
	"TestTransportTLSNextProtoConnImmediateFailureUnused": ownNextProto,
	"TestTransportTLSNextProtoConnImmediateFailureUsed":   ownNextProto,
	"TestTransportTLSNextProtoConnOK":                     ownNextProto,

	"TestAPITransportConnPool":                  "brings a pool of its own, with x/net's connections",
	"TestTransportGroupsPendingDials":           "wants one dial for several calls; here their number is chance",
	"TestTransportFailureErrorForHTTP1Response": "has a server of HTTP/1: it is chance whether the connection or the call begins first",
	"TestPadHeaders":                            "tests a function of the tests",
	"TestTransportRequestPathPseudo":            "calls a function of x/net's",
}

// Reasons that several tests share.
const (
	ownGoesAway   = "wants a connection closed without a word; percore sends GOAWAY"
	ownDials      = "wants one dial for several calls; percore dials for each until one has found HTTP/2, as net/http does"
	ownCauses     = "wants the field named in the cause of the error; percore has other words"
	ownClientConn = "calls methods of x/net's ClientConn"
	ownLooks      = "looks into x/net's connection"
	ownNextProto  = "calls the function in TLSNextProto that is x/net's"
)

// xNetClientTests returns the names of the tests of the Transport in dir, which is the directory of
// x/net's package http2.
func xNetClientTests(t *testing.T, dir string) (names []string) {
	t.Helper()
	for _, name := range []string{"clientconn_test.go", "transport_test.go", "transport_api_test.go", "transport_configure_test.go"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range ownTest.FindAllSubmatch(text, -1) {
			names = append(names, string(found[1]))
		}
	}
	return names
}

var ownTest = regexp.MustCompile(`(?m)^func (Test\w+)\(t \*testing\.T\)`)

// changeXNetTransport makes percoretest serve the requests of the Transport in dir. Most of its tests
// have a connection in memory whose other end sends frames one by one. Where they have a ClientConn, it
// is a Transport with one connection here.
func changeXNetTransport(t *testing.T, dir string) {
	t.Helper()
	testnet.CopyFile(t, "testdata/percorexnet.go.txt", filepath.Join(dir, "percorexnet.go"))
	const client = "\tif percoretest.Client() {\n"
	for _, change := range []struct{ file, at, lines string }{
		{"transport.go", `func \(t \*Transport\) roundTripOpt\((?s:.*?)\n\t\}\n`,
			"\tif percoretest.Client() && t.ConnPool == nil {\n\t\treturn t.percoreRoundTrip(req, func(uint32) {})\n\t}\n"},
		{"transport.go", `func \(t \*Transport\) closeIdleConnections\(\) \{\n`, "\tpercoretest.CloseIdleXNet(t)\n"},
		{"export_test.go", `func \(t \*Transport\) TestNewClientConn\(.*\{\n`, client + "\t\treturn nil, t.percoreConnect(c)\n\t}\n"},
		{"export_test.go", `(?s:.*)`,
			"\nfunc (t *Transport) PercoreRoundTrip(req *http.Request, f func(uint32)) (*http.Response, error) {\n\treturn t.percoreRoundTrip(req, f)\n}\n"},
		{"clientconn_go126_test.go", `return tc\.cc1\.RoundTrip\(req\)\n`, "\t} else if percoretest.Client() {\n\t\treturn tc.tr.PercoreRoundTrip(req, f)\n"},
		{"clientconn_test.go", `\ttt\.tr1 = tr\.TestTransport\(\)\n`, "\tt.Cleanup(func() { percoretest.CloseXNet(tr) })\n"},
	} {
		changeFile(t, filepath.Join(dir, change.file), func(text string) string {
			text = insertAt(t, text, change.at, change.lines)
			if strings.Contains(text, "\t\"percoretest\"\n") {
				return text
			}
			return strings.Replace(text, "import (\n", "import (\n\t\"percoretest\"\n", 1)
		})
	}
	changeFile(t, filepath.Join(dir, "transport_test.go"), func(text string) string {
		// percore leaves GET with a body of unknown length to net/http.
		return strings.ReplaceAll(text, `http.NewRequest("GET", "https://dummy.tld/", body)`, `http.NewRequest("PUT", "https://dummy.tld/", body)`)
	})
}
