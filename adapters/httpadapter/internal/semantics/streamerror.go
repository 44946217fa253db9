package semantics

import (
	"fmt"
	"reflect"

	"github.com/percore/percore/adapters/h2"
)

// A StreamError is the error of a stream of HTTP/2 that has ended early. It has the same fields and text
// as net/http's error, and as x/net/http2's StreamError, which programs find with errors.As.
type StreamError struct {
	StreamID uint32
	Code     h2.ErrCode
	Cause    error
}

// Error returns the text.
func (e StreamError) Error() string {
	if e.Cause != nil {
		return fmt.Sprintf("stream error: stream ID %d; %v; %v", e.StreamID, e.Code, e.Cause)
	}
	return fmt.Sprintf("stream error: stream ID %d; %v", e.StreamID, e.Code)
}

// As lets errors.As find a type with the same fields in another package.
func (e StreamError) As(target any) bool {
	to, from := reflect.ValueOf(target).Elem(), reflect.ValueOf(e)
	if to.Kind() != reflect.Struct || to.NumField() != from.NumField() {
		return false
	}
	for i := range from.NumField() {
		if to.Type().Field(i).Name != from.Type().Field(i).Name || !from.Field(i).Type().ConvertibleTo(to.Field(i).Type()) {
			return false
		}
	}
	for i := range from.NumField() {
		to.Field(i).Set(from.Field(i).Convert(to.Field(i).Type()))
	}
	return true
}
