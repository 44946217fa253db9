// Command rpc answers calls in frames. Quick methods run on the loops, slow ones on workers; a
// connection that waits for calls holds neither a goroutine nor a buffer.
//
//	go run ./rpc
//	go run ./rpc -call upper hello
//
// A call is a frame with its number, the length of the method's name, the name and the argument. Its
// answer is a frame with the number, 0 or 1 for success or failure, and the result or the reason.
// Numbers are chosen by the client, which needn't wait for an answer before its next call: answers
// of quick methods overtake those of slow ones.
package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"log"
	"net"
	"runtime"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/reactor"
)

func main() {
	address := flag.String("addr", "localhost:7001", "address to listen on, or to call")
	call := flag.String("call", "", "call this method, with the argument that follows")
	flag.Parse()
	if *call != "" {
		result, err := callOnce(*address, *call, flag.Arg(0))
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(result)
		return
	}

	ln, err := percore.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	server, err := newServer(methods)
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.Serve(ln))
}

// methods are what a client may call.
var methods = map[string]method{
	"upper": {quick: true, run: func(arg []byte) ([]byte, error) { return bytes.ToUpper(arg), nil }},
	"hash":  {run: hash},
}

// method is a function that a client may call. A quick one runs on the loop: it takes microseconds and
// never blocks. It must not keep its argument.
type method struct {
	quick bool
	run   func(arg []byte) ([]byte, error)
}

// hash hashes its argument and then, 10,000 times, the hash.
func hash(arg []byte) ([]byte, error) {
	if len(arg) == 0 {
		return nil, errors.New("nothing to hash")
	}
	sum := sha256.Sum256(arg)
	for range 10_000 {
		sum = sha256.Sum256(sum[:])
	}
	return fmt.Appendf(nil, "%x", sum), nil
}

// While more than callsWaiting slow calls of a connection wait for a worker, or their arguments
// hold more than heldMax bytes, it isn't read. So it holds that, and one frame.
const (
	callsWaiting = 100
	heldMax      = 256 << 10
)

// newServer makes a server with a worker for each processor.
func newServer(methods map[string]method) (*reactor.Server, error) {
	return reactor.New(&handler{methods},
		reactor.Config{Workers: runtime.GOMAXPROCS(0), WaitingMax: callsWaiting, ReadBufferMax: headLen + frameMax})
}

// callOnce calls a method on a connection of its own.
func callOnce(address, name, arg string) (string, error) {
	c, err := net.Dial("tcp", address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if _, err := c.Write(appendCall(nil, 1, name, []byte(arg))); err != nil {
		return "", err
	}
	_, result, err := readAnswer(c)
	return string(result), err
}
