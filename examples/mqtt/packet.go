package main

import (
	"encoding/binary"
	"errors"
	"strings"
	"unicode/utf8"
)

// The types of packets, in the upper half of their first byte (MQTT 3.1.1, table 2.1).
const (
	typeConnect     = 1
	typeConnack     = 2
	typePublish     = 3
	typePuback      = 4
	typeSubscribe   = 8
	typeSuback      = 9
	typeUnsubscribe = 10
	typeUnsuback    = 11
	typePingreq     = 12
	typePingresp    = 13
	typeDisconnect  = 14
)

// The answers of CONNACK (table 3.1).
const (
	accepted        = 0
	badVersion      = 1
	badClientID     = 2
	notAvailable    = 3
	subscribeFailed = 0x80 // in a SUBACK
)

// errMalformed ends the connection: the standard has no answer to it.
var errMalformed = errors.New("mqtt: malformed packet")

// packet is a packet of any type.
type packet struct {
	kind, flags byte
	body        []byte
}

// cutPacket returns the packet at the start of p and its length: 0 if it is not complete. The length
// of the body is in one to four bytes, seven bits in each, the lowest first (2.2.3).
func cutPacket(p []byte) (pk packet, used int, err error) {
	length := 0
	for i, b := range p[min(1, len(p)):min(5, len(p))] {
		length |= int(b&0x7f) << (7 * i)
		if b&0x80 != 0 {
			continue
		}
		head := 2 + i
		switch {
		case head+length > packetMax:
			return pk, 0, errMalformed
		case len(p) < head+length:
			return pk, 0, nil
		}
		return packet{p[0] >> 4, p[0] & 0xf, p[head:][:length]}, head + length, nil
	}
	if len(p) >= 5 {
		return pk, 0, errMalformed
	}
	return pk, 0, nil
}

// appendHead appends the first bytes of a packet with a body of length bytes.
func appendHead(b []byte, kind, flags byte, length int) []byte {
	b = append(b, kind<<4|flags)
	for ; length >= 0x80; length >>= 7 {
		b = append(b, byte(length)|0x80)
	}
	return append(b, byte(length))
}

// body takes the parts of a packet one after the other. The first that is missing sets bad, and the
// others are empty then.
type body struct {
	rest []byte
	bad  bool
}

func (b *body) take(n int) []byte {
	if len(b.rest) < n {
		b.bad, b.rest = true, nil
		return make([]byte, n) // n is small here
	}
	p := b.rest[:n]
	b.rest = b.rest[n:]
	return p
}

func (b *body) byte() byte     { return b.take(1)[0] }
func (b *body) number() uint16 { return binary.BigEndian.Uint16(b.take(2)) }

// text takes a length and as many bytes of UTF-8 (1.5.3).
func (b *body) text() string {
	n := int(b.number())
	if len(b.rest) < n {
		b.bad, b.rest = true, nil
		return ""
	}
	s := string(b.take(n))
	b.bad = b.bad || !utf8.ValidString(s) || strings.ContainsRune(s, 0)
	return s
}

// connect is a CONNECT (3.1).
type connect struct {
	protocol  string
	version   byte
	flags     byte
	keepAlive uint16 // seconds; 0 for none
	clientID  string
}

func parseConnect(p []byte) (c connect, err error) {
	b := body{rest: p}
	c.protocol, c.version, c.flags, c.keepAlive = b.text(), b.byte(), b.byte(), b.number()
	c.clientID = b.text()
	if c.flags&1 != 0 || b.bad {
		return c, errMalformed
	}
	return c, nil // the rest is a will, a user and a password
}

func (c connect) clean() bool { return c.flags&2 != 0 }
func (c connect) will() bool  { return c.flags&4 != 0 }

// publish is a PUBLISH (3.3).
type publish struct {
	qos     byte
	topic   string
	id      uint16 // if qos is 1
	message []byte // a slice of the packet
}

func parsePublish(pk packet) (m publish, err error) {
	b := body{rest: pk.body}
	m.qos = pk.flags >> 1 & 3
	m.topic = b.text()
	if m.qos > 0 {
		m.id = b.number()
	}
	m.message = b.rest
	if b.bad || m.qos > 1 || m.topic == "" || isTooDeep(m.topic) || strings.ContainsAny(m.topic, "+#") || m.qos == 1 && m.id == 0 {
		return m, errMalformed
	}
	return m, nil
}

// appendPublish appends a PUBLISH. The id counts if qos is 1.
func appendPublish(b []byte, qos byte, id uint16, topic string, message []byte) []byte {
	length := 2 + len(topic) + len(message)
	if qos > 0 {
		length += 2
	}
	b = appendHead(b, typePublish, qos<<1, length)
	b = append(binary.BigEndian.AppendUint16(b, uint16(len(topic))), topic...)
	if qos > 0 {
		b = binary.BigEndian.AppendUint16(b, id)
	}
	return append(b, message...)
}

// subscription is a filter of a SUBSCRIBE (3.8).
type subscription struct {
	filter string
	qos    byte
}

// parseSubscribe reads a SUBSCRIBE, or an UNSUBSCRIBE, whose filters have no QoS.
func parseSubscribe(pk packet) (id uint16, filters []subscription, err error) {
	b := body{rest: pk.body}
	id = b.number()
	for len(b.rest) > 0 {
		s := subscription{filter: b.text()}
		if pk.kind == typeSubscribe {
			s.qos = b.byte()
		}
		b.bad = b.bad || s.qos > 2
		filters = append(filters, s)
	}
	if b.bad || id == 0 || len(filters) == 0 || pk.flags != 2 {
		return 0, nil, errMalformed
	}
	return id, filters, nil
}

// levelsMax is how many levels a topic or a filter may have: the standard sets no limit, and each level
// of a filter is a node of the tree.
const levelsMax = 128

func isTooDeep(topic string) bool { return strings.Count(topic, "/") >= levelsMax }

// isFilter reports whether the wildcards of a filter stand where they may (4.7.1), and it isn't too
// deep.
func isFilter(filter string) bool {
	if filter == "" || isTooDeep(filter) {
		return false
	}
	levels := strings.Split(filter, "/")
	for i, level := range levels {
		if strings.ContainsAny(level, "+#") && level != "+" && (level != "#" || i < len(levels)-1) {
			return false
		}
	}
	return true
}
