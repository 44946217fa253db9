package grpcadapter

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"net/http"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/percore/percore/internal/testnet"
)

// messageLengths are those around which the memory of messages changes.
var messageLengths = []int{0, 1, 100, 1 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 1 << 20, 3 << 20}

// cutReader returns the bytes in pieces of random lengths, which become frames.
type cutReader struct {
	left []byte
	rnd  *rand.Rand
	most int // bytes of a piece
}

// Read implements io.Reader.
func (r *cutReader) Read(p []byte) (int, error) {
	if len(r.left) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.left[:min(len(r.left), 1+r.rnd.IntN(r.most))])
	r.left = r.left[n:]
	return n, nil
}

// readModel is the model of the reader of messages: it returns the whole ones at the beginning of a
// body, and whether something is behind them.
func readModel(body []byte) (whole []byte, torn bool) {
	at := 0
	for len(body)-at >= 5 {
		n := 5 + int(binary.BigEndian.Uint32(body[at+1:]))
		if len(body)-at < n {
			break
		}
		at += n
	}
	return body[:at], at < len(body)
}

// FuzzMessages sends messages in frames that are cut anywhere, with an end that may come too early, to
// a handler that sends each message back, and compares the answer with that of a model.
//
//	go test -run '^$' -fuzz FuzzMessages -fuzztime 60s ./adapters/grpcadapter
func FuzzMessages(f *testing.F) {
	lis := serveEcho(f)
	client := testnet.HTTP2Client(f, nil)
	for seed := range uint64(12) {
		f.Add(seed, uint8(4), uint16(40_000/(1+seed*seed)), uint32(seed%4*seed))
	}
	f.Fuzz(func(t *testing.T, seed uint64, count uint8, piece uint16, missing uint32) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		var body []byte
		for range count % 8 {
			n := messageLengths[rnd.IntN(len(messageLengths))]
			n = max(0, n-10+rnd.IntN(20))
			b, err := proto.Marshal(wrapperspb.Bytes(pattern(n)))
			if err != nil {
				t.Fatal(err)
			}
			body = append(body, message(0, uint32(len(b)), string(b))...)
			if len(body) > 4<<20 {
				break
			}
		}
		body = body[:len(body)-min(len(body), int(missing))]
		want, torn := readModel(body)

		most := max(int(piece), len(body)/2000, 1) // 2,000 frames are enough
		req, err := http.NewRequestWithContext(callContext(t), "POST", "http://"+lis.Addr().String()+"/percore.test.Echo/Chat",
			&cutReader{left: body, rnd: rnd, most: most})
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/grpc")
		req.Header.Set("Te", "trailers")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		got, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		status := resp.Trailer.Get("grpc-status") + resp.Header.Get("grpc-status") // there, without a message
		if wantStatus := map[bool]string{false: "0", true: "13"}[torn]; status != wantStatus {
			t.Errorf("got the status %q %s, want %s", status, resp.Trailer.Get("grpc-message"), wantStatus)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("got %d bytes of messages, want %d, or others", len(got), len(want))
		}
	})
}
