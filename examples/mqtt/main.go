// Command mqtt is the core of an MQTT broker: CONNECT, SUBSCRIBE, PUBLISH with QoS 0 and 1, PINGREQ and
// keep-alive of version 3.1.1. A client that waits for messages takes some hundred bytes.
//
//	go run ./mqtt
//	mosquitto_sub -t 'sensors/#' &
//	mosquitto_pub -t sensors/1/temperature -m 21.5
//
// Not there: sessions that outlive their connection, retained messages, wills, QoS 2, users. A client
// that asks for a will or QoS 2 is refused.
//
// A client's filters take a megabyte at most, and have 128 levels: a tree of them costs a hundred times
// what a client has to send for it.
//
// A subscriber that reads more slowly than others publish loses messages of QoS 0, and its connection
// if it misses one of QoS 1. The others don't wait for it.
package main

import (
	"flag"
	"log"

	"github.com/percore/percore"
	"github.com/percore/percore/adapters/reactor"
)

func main() {
	address := flag.String("addr", "localhost:1883", "address to listen on")
	flag.Parse()

	ln, err := percore.Listen("tcp", *address)
	if err != nil {
		log.Fatal(err)
	}
	server, err := newServer()
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.Serve(ln))
}

const (
	packetMax  = 256 << 10 // a packet's length, with its header
	behindMax  = 256 << 10 // unsent bytes from which messages of QoS 0 are dropped
	backlogMax = 1 << 20   // unsent bytes at which a message of QoS 1 ends the connection
)

func newServer() (*reactor.Server, error) {
	return reactor.New(newBroker(), reactor.Config{ReadBufferMax: packetMax, WriteHardLimit: backlogMax})
}
