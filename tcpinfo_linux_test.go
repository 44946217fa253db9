//go:build !percore_net

package percore

import (
	"errors"
	"io"
	"math"
	"net"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/percore/percore/internal/testnet"
)

// TestTCPInfo: the figures are those of the connection's own traffic. A unix socket has none.
func TestTCPInfo(t *testing.T) {
	testnet.NoLeaks(t)
	c, client := accepted(t, testnet.TCP4)
	const sent, received = 100_000, 30_000
	go client.Write(make([]byte, received))
	if _, err := io.CopyN(io.Discard, c, received); err != nil {
		t.Fatal(err)
	}
	go c.Write(make([]byte, sent))
	if _, err := io.CopyN(io.Discard, client, sent); err != nil {
		t.Fatal(err)
	}
	var info TCPInfo
	var err error
	testnet.Eventually(t, "all is acknowledged", func() bool {
		info, err = c.TCPInfo()
		return err != nil || info.Unacked == 0 && info.BytesAcked >= sent
	})
	if err != nil {
		t.Fatal(err)
	}
	if info.RTT <= 0 || info.RTT > 10*time.Second || info.MinRTT > info.RTT+time.Second || info.RTO < info.RTT {
		t.Errorf("got the times %v, %v, %v", info.RTT, info.MinRTT, info.RTO)
	}
	if info.BytesAcked > sent+1 || info.BytesReceived != received || info.NotSent != 0 || info.SegmentBytes <= 0 || info.Window <= 0 || info.Sent == 0 || info.Retransmitted > info.Sent || info.DeliveryRate == 0 {
		t.Errorf("got %+v", info)
	}
	c.Close()
	if _, err := c.TCPInfo(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("of a closed connection: got %v", err)
	}
	if _, err := new(Conn).TCPInfo(); err != syscall.EINVAL {
		t.Errorf("of a zero Conn: got %v", err)
	}
	unix, _ := accepted(t, testnet.Unix)
	var op *net.OpError
	if _, err := unix.TCPInfo(); !errors.As(err, &op) || op.Op != "get" {
		t.Errorf("of a unix socket: got %v", err)
	}
}

// TestTCPInfoOf: units, and what was not measured.
func TestTCPInfoOf(t *testing.T) {
	got := tcpInfoOf(&unix.TCPInfo{Rtt: 1500, Rttvar: 20, Rto: 200_000, Min_rtt: math.MaxUint32, Data_segs_out: 9, Total_retrans: 3, Dsack_dups: 1, Lost: 2, Unacked: 5, Delivery_rate: 7})
	want := TCPInfo{
		RTT: 1500 * time.Microsecond, RTTVar: 20 * time.Microsecond, RTO: 200 * time.Millisecond,
		Sent: 9, Retransmitted: 3, Spurious: 1, Lost: 2, Unacked: 5, DeliveryRate: 7,
	}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
