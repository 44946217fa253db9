package rpc

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/grpclog"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/percore/percore/adapters/h2"
)

var logger = grpclog.Component("grpcadapter")

// The errors of grpc-go's transport.
var (
	errHeaderSent  = status.Error(codes.Internal, "transport: SendHeader called multiple times")
	errHeaderLimit = status.Error(codes.Internal, "transport: trying to send header list size larger than the limit set by peer")
	errClosing     = status.Error(codes.Unavailable, "transport is closing")
)

// contextError returns the status of a call whose context has ended with err.
func contextError(err error) error {
	switch err {
	case context.DeadlineExceeded:
		return status.Error(codes.DeadlineExceeded, err.Error())
	case nil, context.Canceled:
		return status.Error(codes.Canceled, context.Canceled.Error())
	}
	return status.Errorf(codes.Internal, "Unexpected error from context packet: %v", err)
}

// statusError returns err as an error of package status, except for io.EOF.
func statusError(err error) error {
	switch err {
	case nil, io.EOF:
		return err
	case context.DeadlineExceeded, context.Canceled:
		return contextError(err)
	case io.ErrUnexpectedEOF:
		return status.Error(codes.Internal, err.Error())
	}
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.Error(codes.Unknown, err.Error())
}

// subtypeOf returns what follows "application/grpc" in a content-type.
func subtypeOf(contentType string) (subtype string, ok bool) {
	rest, ok := strings.CutPrefix(contentType, "application/grpc")
	switch {
	case !ok:
		return "", false
	case rest == "":
		return "", true
	case rest[0] == '+' || rest[0] == ';':
		return rest[1:], true
	}
	return "", false
}

// decodeTimeout returns the time in a grpc-timeout. Its errors are grpc-go's.
func decodeTimeout(s string) (time.Duration, error) {
	switch {
	case len(s) < 2:
		return 0, fmt.Errorf("transport: timeout string is too short: %q", s)
	case len(s) > 9: // eight digits and the unit
		return 0, fmt.Errorf("transport: timeout string is too long: %q", s)
	}
	unit := units[s[len(s)-1]]
	if unit == 0 {
		return 0, fmt.Errorf("transport: timeout unit is not recognized: %q", s)
	}
	n, err := strconv.ParseUint(s[:len(s)-1], 10, 64)
	if err != nil {
		return 0, err
	}
	if n > uint64(math.MaxInt64/unit) {
		return math.MaxInt64, nil
	}
	return time.Duration(n) * unit, nil
}

// units are the units of a grpc-timeout.
var units = [256]time.Duration{
	'H': time.Hour, 'M': time.Minute, 'S': time.Second,
	'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
}

// isReserved reports whether a field belongs to the protocol and is not metadata. A field without a name
// is metadata. It is not valid, so it resets the stream when it is sent.
func isReserved(name string) bool {
	switch name {
	case "content-type", "user-agent", "grpc-message-type", "grpc-encoding", "grpc-message", "grpc-status", "grpc-timeout", "te":
		return true
	}
	return strings.HasPrefix(name, ":")
}

// isBinary reports whether the values of a field are coded in base64.
func isBinary(name string) bool { return strings.HasSuffix(name, "-bin") }

// encodeValue returns a value of metadata as it is sent.
func encodeValue(name, v string) string {
	if isBinary(name) {
		return base64.RawStdEncoding.EncodeToString([]byte(v))
	}
	return v
}

// decodeValue is the reverse of encodeValue. A value in base64 may be padded.
func decodeValue(name, v string) (string, error) {
	if !isBinary(name) {
		return v, nil
	}
	coding := base64.RawStdEncoding
	if len(v)%4 == 0 {
		coding = base64.StdEncoding
	}
	b, err := coding.DecodeString(v)
	if err != nil {
		logger.Warningf("Failed to decode metadata header (%q, %q): %v", name, v, err)
	}
	return string(b), err
}

// validate returns an error, in grpc-go's words, if metadata must not be sent.
func validate(md metadata.MD) error {
	for name, values := range md {
		if err := validateName(name); err != nil {
			return err
		}
		if isBinary(name) {
			continue
		}
		for _, v := range values {
			if !isPrintable(v) {
				return fmt.Errorf("header key %q contains value with non-printable ASCII characters", name)
			}
		}
	}
	return nil
}

func validateName(name string) error {
	if name == "" {
		return errors.New("there is an empty key in the header")
	}
	if name[0] == ':' {
		return nil // it is left out
	}
	for i := 0; i < len(name); i++ {
		b := name[i]
		if !('a' <= b && b <= 'z' || '0' <= b && b <= '9' || b == '.' || b == '-' || b == '_') {
			return fmt.Errorf("header key %q contains illegal characters not in [0-9a-z-_.]", name)
		}
	}
	return nil
}

// isPrintable reports whether s has only printable characters of ASCII.
func isPrintable(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// encodeMessage returns the message of a status as it is sent: everything but printable ASCII is
// percent-encoded, and invalid UTF-8 becomes U+FFFD.
func encodeMessage(s string) string {
	if isPrintable(s) && !strings.Contains(s, "%") {
		return s
	}
	b := make([]byte, 0, len(s)+16)
	for _, r := range s { // yields U+FFFD for invalid UTF-8
		if ' ' <= r && r <= '~' && r != '%' {
			b = append(b, byte(r))
			continue
		}
		var code [utf8.UTFMax]byte
		for _, c := range code[:utf8.EncodeRune(code[:], r)] {
			const digits = "0123456789ABCDEF"
			b = append(b, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(b)
}

// decodeMessage is the reverse of encodeMessage. It leaves invalid escapes as they are.
func decodeMessage(s string) string {
	if !strings.Contains(s, "%") {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				b = append(b, byte(c))
				i += 2
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}

// encodeTimeout returns a time as a grpc-timeout, rounded up, with at most eight digits.
func encodeTimeout(d time.Duration) string {
	const most = 1e8 - 1
	for _, unit := range []byte("numSMH") {
		n := d / units[unit]
		if d%units[unit] > 0 {
			n++
		}
		if n <= most || unit == 'H' {
			var p [24]byte
			return string(append(strconv.AppendInt(p[:0], int64(n), 10), unit))
		}
	}
	return ""
}

// Fields that nearly all answers have.
var (
	plainType = h2.MakeField("content-type", "application/grpc")
	codeOK    = h2.MakeField("grpc-status", "0")
)

// contentType returns the field of a content-subtype; "": none.
func contentType(subtype string) h2.Field {
	if subtype == "" {
		return plainType
	}
	return h2.MakeField("content-type", "application/grpc+"+subtype)
}

const detailsName = "grpc-status-details-bin"

// appendMetadata appends the fields of metadata.
func appendMetadata(to []h2.Field, md metadata.MD) []h2.Field {
	for name, values := range md {
		if isReserved(name) {
			continue
		}
		for _, v := range values {
			to = append(to, h2.MakeField(name, encodeValue(name, v)))
		}
	}
	return to
}

// statusFields returns the fields of a status; nil is OK.
func statusFields(to []h2.Field, st *status.Status) (fields []h2.Field, hasDetails bool) {
	if st.Code() == codes.OK {
		to = append(to, codeOK)
	} else {
		to = append(to, h2.MakeField("grpc-status", strconv.Itoa(int(st.Code()))))
	}
	if m := st.Message(); m != "" {
		to = append(to, h2.MakeField("grpc-message", encodeMessage(m)))
	}
	if p := st.Proto(); len(p.GetDetails()) > 0 {
		b, err := proto.Marshal(p)
		if err != nil {
			logger.Errorf("Failed to marshal rpc status: %v, error: %v", p, err)
		} else {
			to = append(to, h2.MakeField(detailsName, base64.RawStdEncoding.EncodeToString(b)))
		}
		return to, true
	}
	return to, false
}
