// Command load fills rooms with members that talk, and checks that each of them hears every message
// of its room that was acknowledged, once, in the order that the others hear it in. Kill a process of
// the hub meanwhile: the members go on at the others.
//
//	go run ./load -servers localhost:8081,localhost:8082,localhost:8083 -members 9000
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

func main() {
	log.SetFlags(log.Ltime)
	servers := flag.String("servers", "localhost:8081,localhost:8082,localhost:8083", "addresses of the processes")
	var l load
	flag.IntVar(&l.members, "members", 300, "members")
	flag.IntVar(&l.rooms, "rooms", 10, "rooms")
	flag.IntVar(&l.rate, "rate", 100, "messages per second of all members together")
	duration := flag.Duration("duration", 30*time.Second, "how long they talk")
	settle := flag.Duration("settle", time.Minute, "how long the last messages may take")
	flag.Parse()
	l.servers = strings.Split(*servers, ",")

	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := l.start(ctx); err != nil {
		log.Fatal(err)
	}
	log.Printf("%d members in %d rooms talk for %v", l.members, l.rooms, *duration)
	ticker := time.NewTicker(5 * time.Second)
	defer ticker.Stop()
	go func() {
		for range ticker.C {
			log.Print(l.summary())
		}
	}()
	talk, cancel := context.WithTimeout(ctx, *duration)
	l.talk(talk)
	cancel()
	wait, cancel := context.WithTimeout(ctx, *settle)
	defer cancel()
	problems := l.check(wait)
	log.Print(l.summary())
	for _, problem := range problems {
		fmt.Println(problem)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
	fmt.Println("every acknowledged message came once and in order to every member of its room")
}
