package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	streamName = "HUB"
	// keepFor is how long a member may be away and still get everything.
	keepFor = time.Hour
	// duplicateWindow is how long a member may take to send a message again whose
	// acknowledgement it has not got. Later, the message would come twice.
	duplicateWindow = 10 * time.Minute
	// startLimit is how long the servers of a cluster may take to find each other.
	startLimit = 2 * time.Minute
	tryLimit   = 3 * time.Second // for one of the tries
	tryPause   = 200 * time.Millisecond
)

// backboneConfig says where NATS is. The zero value is a server of the process' own.
type backboneConfig struct {
	url        string // of NATS elsewhere
	cluster    string // this process' address for the others; empty: a cluster of one
	routes     string // the addresses of all
	secretFile string
	store      string // folder; empty: a temporary one
}

// A backbone carries the messages between processes, and keeps them.
type backbone struct {
	nc     *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream
	server *server.Server // nil if NATS is elsewhere
	remove string         // temporary folder
}

// openBackbone connects to NATS and makes the stream, once enough servers are there to keep it.
func openBackbone(ctx context.Context, config backboneConfig) (_ *backbone, err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	b := new(backbone)
	defer func() {
		if err != nil {
			b.close()
		}
	}()
	replicas := 1
	options := []nats.Option{nats.MaxReconnects(-1), nats.RetryOnFailedConnect(true)}
	if config.url == "" {
		if err := b.startServer(config); err != nil {
			return nil, err
		}
		options = append(options, nats.InProcessServer(b.server))
		if config.cluster != "" {
			replicas = min(3, strings.Count(config.routes, ",")+1)
		}
	} else if strings.Contains(config.url, ",") {
		replicas = 3
	}
	if b.nc, err = nats.Connect(config.url, options...); err != nil {
		return nil, err
	}
	if b.js, err = jetstream.New(b.nc); err != nil {
		return nil, err
	}
	return b, b.makeStream(ctx, replicas)
}

// makeStream makes the stream, or finds the one that another process has made.
func (b *backbone) makeStream(ctx context.Context, replicas int) error {
	said := ""
	for {
		// The servers of a cluster need seconds to elect a leader. Until then some requests get no answer.
		try, cancel := context.WithTimeout(ctx, tryLimit)
		stream, err := b.js.CreateOrUpdateStream(try, jetstream.StreamConfig{
			Name:       streamName,
			Subjects:   []string{"room.*"},
			Replicas:   replicas,
			MaxAge:     keepFor,
			Duplicates: duplicateWindow,
			DenyDelete: true, // so that a number that is missing means that it has not come yet
			// Each message goes to all processes once the stream has it.
			RePublish: &jetstream.RePublish{Source: "room.*", Destination: "live.{{wildcard(1)}}"},
		})
		cancel()
		if err == nil {
			b.stream = stream
			return nil
		}
		if text := err.Error(); text != said {
			log.Print("waiting for NATS: ", text)
			said = text
		}
		select {
		case <-time.After(tryPause):
		case <-ctx.Done():
			return err
		}
	}
}

// startServer starts a NATS server within this process.
func (b *backbone) startServer(config backboneConfig) error {
	o := &server.Options{JetStream: true, StoreDir: config.store, DontListen: true, NoSigs: true, NoLog: true}
	if o.StoreDir == "" {
		dir, err := os.MkdirTemp("", "hub-")
		if err != nil {
			return err
		}
		o.StoreDir, b.remove = dir, dir
	}
	if config.cluster != "" {
		host, port, err := net.SplitHostPort(config.cluster)
		if err != nil {
			return err
		}
		number, err := strconv.Atoi(port)
		if err != nil {
			return fmt.Errorf("-cluster %s: the port must be a number", config.cluster)
		}
		secret, err := readSecret(config.secretFile)
		if err != nil {
			return err
		}
		o.ServerName = config.cluster // JetStream knows a server again by its name
		o.Cluster = server.ClusterOpts{Name: "hub", Host: host, Port: number, Username: "hub", Password: secret}
		for route := range strings.SplitSeq(config.routes, ",") {
			if route != config.cluster {
				o.Routes = append(o.Routes, server.RoutesFromStr("nats://hub:"+secret+"@"+route)...)
			}
		}
		// A client's port is needed where a server has routes; it listens on this machine only.
		o.DontListen, o.Host, o.Port = false, "127.0.0.1", server.RANDOM_PORT
	}
	s, err := server.NewServer(o)
	if err != nil {
		return err
	}
	b.server = s
	s.Start()
	if !s.ReadyForConnections(startLimit) {
		return errors.New("the server within the process did not start")
	}
	return nil
}

// readSecret returns what is in the file, or nothing if there is none: then every program that reaches
// the addresses of -cluster can be one of the servers.
func readSecret(file string) (string, error) {
	if file == "" {
		return "", nil
	}
	secret, err := os.ReadFile(file)
	return string(bytes.TrimSpace(secret)), err
}

func (b *backbone) ready() bool { return b.nc.Status() == nats.CONNECTED }

// close ends the connection, and the server within the process.
func (b *backbone) close() {
	if b.nc != nil {
		b.nc.Close()
	}
	if b.server != nil {
		b.server.Shutdown()
		b.server.WaitForShutdown()
	}
	if b.remove != "" {
		os.RemoveAll(b.remove)
	}
}
