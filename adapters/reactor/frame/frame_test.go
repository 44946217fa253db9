package frame

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"
)

func TestLine(t *testing.T) {
	for _, tt := range []struct {
		in, line string
		limit    int
		used     int
		err      error
	}{
		{"", "", 3, 0, nil},
		{"abc", "", 3, 0, nil},
		{"abc\r", "", 3, 0, nil},
		{"abc\r\nd", "abc", 3, 5, nil},
		{"abc\nd", "abc", 3, 4, nil},
		{"\n", "", 3, 1, nil},
		{"\r\n", "", 0, 2, nil},
		{"a\r\r\n", "a\r", 3, 4, nil},
		{"abcd", "", 3, 0, ErrTooLong},
		{"abcd\n", "", 3, 0, ErrTooLong},
		{"abc\rd", "", 3, 0, ErrTooLong},
		{"abc\nd", "abc", math.MaxInt, 4, nil},
		{"abc", "", math.MaxInt, 0, nil},
	} {
		line, used, err := Line([]byte(tt.in), tt.limit)
		if string(line) != tt.line || used != tt.used || err != tt.err {
			t.Errorf("Line(%q, %d): got %q, %d, %v, want %q, %d, %v", tt.in, tt.limit, line, used, err, tt.line, tt.used, tt.err)
		}
	}
}

// FuzzPrefix has the messages that make sense.
func TestPrefix(t *testing.T) {
	if _, err := (Prefix{4, false, 300}).AppendLength(nil, 301); err != ErrTooLong {
		t.Errorf("beyond the limit: got %v, want %v", err, ErrTooLong)
	}
	if _, err := (Prefix{1, false, 1000}).AppendLength(nil, 256); err != ErrTooLong {
		t.Errorf("a byte for 256: got %v, want %v", err, ErrTooLong)
	}
	if got, _ := (Prefix{4, true, 1000}).AppendLength(nil, 258); !bytes.Equal(got, []byte{2, 1, 0, 0}) {
		t.Errorf("little endian: got %v", got)
	}
	if _, _, err := (Prefix{8, false, 1000}).Next(bytes.Repeat([]byte{255}, 8)); err != ErrTooLong {
		t.Errorf("the greatest length: got %v, want %v", err, ErrTooLong)
	}
	defer func() {
		if recover() == nil {
			t.Error("a length of 3 bytes: got no panic")
		}
	}()
	Prefix{Bytes: 3}.Next(make([]byte, 10))
}

// The lines are a bufio.Scanner's, wherever the stream is cut.
func FuzzLine(f *testing.F) {
	f.Add("a\nbc\r\n\r\n\rd\r\r\nlast", uint(1))
	f.Add(strings.Repeat("x", 100), uint(7))
	f.Fuzz(func(t *testing.T, text string, cut uint) {
		const limit = 50
		var want []string
		s := bufio.NewScanner(strings.NewReader(text[:strings.LastIndexByte(text, '\n')+1]))
		for s.Scan() {
			want = append(want, s.Text())
		}
		have := 0
		for at := 0; at <= len(text); {
			line, used, err := Line([]byte(text[have:at]), limit)
			switch {
			case err != nil:
				rest, _, _ := strings.Cut(text[have:], "\n")
				if len(strings.TrimSuffix(rest, "\r")) <= limit {
					t.Errorf("a line of %d bytes is refused", len(rest))
				}
				return
			case used > 0:
				if len(want) == 0 || string(line) != want[0] || len(line) > limit {
					t.Fatalf("got line %q, want %q", line, want)
				}
				want = want[1:]
				have += used
			case at == len(text):
				at++
			default:
				at = min(len(text), at+1+int(cut%10))
			}
		}
		if len(want) > 0 {
			t.Errorf("lines are missing: %q", want)
		}
	})
}

// A message is what its length says, in all widths and orders, and none is read beyond the bytes.
func FuzzPrefix(f *testing.F) {
	for width := range uint8(4) {
		for _, little := range []bool{false, true} {
			p, _ := Prefix{1 << width, little, 10}.AppendLength(nil, 3)
			p = append(p, "abcd"...)
			for n := range len(p) {
				f.Add(p[:n], width, little)
			}
		}
	}
	f.Fuzz(func(t *testing.T, p []byte, width uint8, little bool) {
		x := Prefix{1 << (width % 4), little, 1 << 10}
		message, used, err := x.Next(p)
		if len(p) < x.Bytes {
			if used != 0 || err != nil {
				t.Errorf("got %d, %v of a part of a length", used, err)
			}
			return
		}
		whole := make([]byte, 8)
		for i, b := range p[:x.Bytes] {
			if little {
				whole[7-i] = b
			} else {
				whole[8-x.Bytes+i] = b
			}
		}
		size := binary.BigEndian.Uint64(whole)
		switch {
		case size > uint64(x.Limit):
			if err != ErrTooLong {
				t.Errorf("got %v for %d bytes, want %v", err, size, ErrTooLong)
			}
		case size > uint64(len(p)-x.Bytes):
			if used != 0 || err != nil {
				t.Errorf("got %d, %v, want nothing yet", used, err)
			}
		default:
			if err != nil || used != x.Bytes+int(size) || !bytes.Equal(message, p[x.Bytes:used]) {
				t.Errorf("got %d bytes, %d, %v, want %d", len(message), used, err, size)
			}
			if header, err := x.AppendLength(nil, len(message)); err != nil || !bytes.Equal(header, p[:x.Bytes]) {
				t.Errorf("AppendLength: got %v, %v, want %v", header, err, p[:x.Bytes])
			}
		}
	})
}
