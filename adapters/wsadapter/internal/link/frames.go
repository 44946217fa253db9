package link

// Frames follows the frames (RFC 6455, section 5.2) in a stream of bytes, to know where a message ends.
// It checks nothing: a library does, and gives up a connection whose frames are wrong.
//
//	pos          means                               leaves by
//	0            between two frames                  a byte: 1
//	1 to size-1  in a frame's header; pos bytes of   the header's last byte: size; 0 if there is no
//	             it have come                        payload
//	size         in its payload; left bytes of it    the payload's last byte: 0
//	             are to come
//
// size is 2 until the second byte says how long the header is.
type Frames struct {
	left  uint64 // of the payload: while the header comes, its length as far as it is known
	pos   uint8
	size  uint8
	wide  uint8 // bytes of the header that hold the payload's length, after the second
	first byte  // the header's first byte: FIN and the opcode
	open  bool  // a message has begun, and more of its frames are to come

	Closing bool // a close message has come; what comes after it is no message
}

// Bits of the first two bytes of a frame.
const (
	Fin        = 0x80 // in the first
	controlBit = 0x08
	Mask       = 0x80 // in the second
)

// Close is the opcode of a close message.
const Close = 8

// Between reports whether the bytes so far end with a message, or with a control frame between two.
func (f *Frames) Between() bool { return f.pos == 0 && !f.open }

// InFrame reports whether the bytes so far end within a frame.
func (f *Frames) InFrame() bool { return f.pos != 0 }

// Pass notes bytes.
func (f *Frames) Pass(p []byte) {
	for len(p) > 0 {
		if f.pos > 0 && f.pos == f.size {
			n := min(f.left, uint64(len(p)))
			f.left -= n
			p = p[n:]
		} else {
			f.passHeader(p[0])
			p = p[1:]
		}
		if f.pos == f.size && f.left == 0 {
			f.endFrame()
		}
	}
}

// passHeader notes a byte of a header.
func (f *Frames) passHeader(b byte) {
	switch {
	case f.pos == 0:
		f.first, f.size, f.left = b, 2, 0
	case f.pos == 1:
		switch length := b &^ Mask; length {
		case 126:
			f.wide = 2
		case 127:
			f.wide = 8
		default:
			f.wide, f.left = 0, uint64(length)
		}
		f.size += f.wide
		if b&Mask != 0 {
			f.size += 4
		}
	case f.pos < 2+f.wide:
		f.left = f.left<<8 | uint64(b)
	}
	f.pos++
}

func (f *Frames) endFrame() {
	f.pos = 0
	f.Closing = f.Closing || f.first&0xf == Close
	if f.first&controlBit == 0 {
		f.open = f.first&Fin == 0
	}
}
