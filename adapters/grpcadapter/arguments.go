package grpcadapter

import (
	"errors"
	"fmt"
	"net"
	"reflect"

	"github.com/percore/percore"
)

// A call refuses arguments that can't be meant, with a sentence that names them: with an error if
// the function returns one, and otherwise with a panic, as net/http does with a nil handler.

// errNilListener is for a Serve without a listener.
var errNilListener = errors.New("grpcadapter: Serve was called with a nil net.Listener: pass the result of percore.Listen, after its error was checked")

// errNilContext is for a function that a handler calls.
var errNilContext = errors.New("grpcadapter: a nil context was passed: it must be that of the handler")

// isNilListener reports whether l is nil, or the nil *percore.Listener of a Listen that has failed.
func isNilListener(l net.Listener) bool {
	own, ok := l.(*percore.Listener)
	return l == nil || ok && own == nil
}

// refuseNil panics if an argument is nil. hint says what to do.
func refuseNil(isNil bool, function, argument, hint string) {
	if isNil {
		panic(fmt.Sprintf("grpcadapter: %s was called with a nil %s: %s", function, argument, hint))
	}
}

// refuseNilOption panics if one of a function's last arguments is nil.
func refuseNilOption[T any](function string, all []T) {
	for i := range all {
		if reflect.ValueOf(&all[i]).Elem().IsNil() {
			panic(errNilOption(function, i).Error())
		}
	}
}

// errNilOption is the error of an option that is nil; i counts from 0.
func errNilOption(function string, i int) error {
	return fmt.Errorf("grpcadapter: argument %d of %s is nil: leave it out", i+1, function)
}
