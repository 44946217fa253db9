package http2

import (
	"encoding/binary"
	"math"
)

// The settings of RFC 9113, section 6.5.2, and RFC 8441, section 3.
const (
	settingHeaderTableSize   = 0x1
	settingEnablePush        = 0x2
	settingMaxStreams        = 0x3
	settingInitialWindow     = 0x4
	settingMaxFrameSize      = 0x5
	settingMaxHeaderListSize = 0x6
	settingExtendedConnect   = 0x8
	settingNoRFC7540         = 0x9 // SETTINGS_NO_RFC7540_PRIORITIES of RFC 9218
)

const (
	settingBytes       = 6
	settingsMax        = 100 // in a frame, as in net/http
	initialWindowBytes = 65535
	maxWindowBytes     = 1<<31 - 1
)

// A settingRule is the range of a setting's values.
type settingRule struct {
	least, most uint32
	code        ErrCode // of a value outside
}

// settingRules has the settings whose values can be wrong. SETTINGS_MAX_FRAME_SIZE, for example,
// must not be too small, nor larger than a length can express.
var settingRules = map[uint16]settingRule{
	settingEnablePush:      {0, 1, ProtocolError},
	settingInitialWindow:   {0, maxWindowBytes, FlowControlError},
	settingMaxFrameSize:    {maxFrameBytes, 1<<24 - 1, ProtocolError},
	settingExtendedConnect: {0, 1, ProtocolError},
}

// startBytes is the most that start appends: the preface of a client and the settings of a server.
const startBytes = len(Preface) + headerBytes + 7*settingBytes + headerBytes + 4

// start appends our first frames: a client's preface, the settings, and a WINDOW_UPDATE for the rest of
// the connection's window.
func (c *Conn) start() {
	cfg := c.cfg
	preface, id, v := cfg.side().hello(cfg)
	c.opens = preface != ""
	c.reader.greeted = c.opens // no preface comes from a server
	w := &c.writer
	w.out = append(make([]byte, 0, startBytes), preface...)
	at := len(w.out)
	w.out = appendHeader(w.out, typeSettings, 0, 0, 0)
	w.setting(settingMaxFrameSize, uint32(cfg.FrameBytes))
	w.setting(id, v)
	w.setting(settingMaxHeaderListSize, uint32(cfg.HeaderListBytes))
	w.setting(settingHeaderTableSize, cfg.DecoderTableBytes)
	w.setting(settingInitialWindow, uint32(cfg.StreamWindowBytes))
	if cfg.ExtendedConnect {
		w.setting(settingExtendedConnect, 1)
	}
	if cfg.Priorities != UnknownPriorities {
		w.setting(settingNoRFC7540, 1)
	}
	putLength(w.out[at:], len(w.out)-at-headerBytes)
	c.unacked++
	if more := cfg.ConnWindowBytes - initialWindowBytes; more > 0 {
		w.windowUpdate(0, more)
	}
}

// checkSettings checks the first SETTINGS_INITIAL_WINDOW_SIZE of a frame, as net/http does before
// anything else.
func checkSettings(p []byte) verdict {
	for q := p; len(q) > 0; q = q[settingBytes:] {
		if binary.BigEndian.Uint16(q) == settingInitialWindow {
			if binary.BigEndian.Uint32(q[2:]) > maxWindowBytes {
				return connError(FlowControlError, "SETTINGS_INITIAL_WINDOW_SIZE is too large")
			}
			break
		}
	}
	return verdict{}
}

// settings applies the peer's settings in their order, and acknowledges the frame at once.
func (c *Conn) settings(f *Frame) verdict {
	if f.has(flagAck) {
		return c.settingsAcked()
	}
	if v := c.budgets.spendIdle(idlePerSettings); v.scope != fine {
		return v
	}
	if len(f.payload) > settingsMax*settingBytes {
		return connError(ProtocolError, "SETTINGS are too many")
	}
	for p := f.payload; len(p) > 0; p = p[settingBytes:] {
		if v := c.setting(binary.BigEndian.Uint16(p), binary.BigEndian.Uint32(p[2:])); v.scope != fine {
			return v
		}
	}
	c.writer.control(typeSettings, flagAck, 0, nil)
	return verdict{}
}

// settingsAcked notes that the peer knows our settings. The reader has already set the table's limit.
func (c *Conn) settingsAcked() verdict {
	if c.unacked == 0 {
		return connError(ProtocolError, "SETTINGS were acknowledged that were not sent")
	}
	c.unacked--
	return verdict{}
}

// setting applies one setting of the peer.
func (c *Conn) setting(id uint16, v uint32) verdict {
	if id == settingNoRFC7540 && c.cfg.Priorities != UnknownPriorities && v > 1 {
		return connError(ProtocolError, "the value of a setting is not allowed")
	}
	if r, ok := settingRules[id]; ok && (v < r.least || v > r.most) {
		return connError(r.code, "the value of a setting is not allowed")
	}
	switch id {
	case settingMaxStreams:
		c.peerStreams = int32(min(v, math.MaxInt32))
	case settingHeaderTableSize:
		c.writer.enc.PeerLimit(v)
	case settingInitialWindow:
		return c.setInitialWindow(int32(v))
	case settingMaxFrameSize:
		c.writer.frameMax = int32(min(v, uint32(c.cfg.SendFrameBytes)))
	case settingMaxHeaderListSize:
		c.peerList.Store(v)
	}
	return verdict{}
}
