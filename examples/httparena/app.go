package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/gorilla/websocket"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"google.golang.org/grpc"

	"github.com/percore/percore/adapters/wsadapter"
	"github.com/percore/percore/examples/httparena/benchmarkpb"
)

// bodyMax is how long a number in a body may be.
const bodyMax = 64

// item is an entry of the data set, and of the database.
type item struct {
	ID       int             `json:"id"`
	Name     string          `json:"name"`
	Category string          `json:"category"`
	Price    int             `json:"price"`
	Quantity int             `json:"quantity"`
	Active   bool            `json:"active"`
	Tags     json.RawMessage `json:"tags"`
	Rating   struct {
		Score int `json:"score"`
		Count int `json:"count"`
	} `json:"rating"`
}

// totalled is an item with what it costs.
type totalled struct {
	item
	Total int `json:"total"`
}

type list[T any] struct {
	Items []T `json:"items"`
	Count int `json:"count"`
}

// app has the handlers of HTTP.
type app struct {
	items    []item
	database *pgxpool.Pool // nil if there is none
	upgrader websocket.Upgrader
}

// newHandler reads the items, if the file exists, and connects to the database, if its URL is not empty.
func newHandler(ctx context.Context, data, database string) (http.Handler, error) {
	a := &app{upgrader: websocket.Upgrader{CheckOrigin: func(*http.Request) bool { return true }}}
	switch b, err := os.ReadFile(data); {
	case err == nil:
		if err := json.Unmarshal(b, &a.items); err != nil {
			return nil, fmt.Errorf("%s: %w", data, err)
		}
	case !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if database != "" {
		config, err := pgxpool.ParseConfig(database)
		if err != nil {
			return nil, err
		}
		if n, err := strconv.ParseInt(os.Getenv("DATABASE_MAX_CONN"), 10, 32); err == nil && n > 0 {
			config.MaxConns = int32(n)
		}
		if a.database, err = pgxpool.NewWithConfig(ctx, config); err != nil {
			return nil, err
		}
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/baseline11", sum)
	mux.HandleFunc("/baseline2", sum)
	mux.HandleFunc("GET /json/{count}", a.json)
	mux.HandleFunc("GET /async-db", a.query)
	mux.HandleFunc("GET /ws", a.echo)
	return mux, nil
}

// sum answers with the sum of the query's numbers and that in the body, if there is one.
func sum(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	total := number(query.Get("a"), 0) + number(query.Get("b"), 0)
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, bodyMax))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		total += number(strings.TrimSpace(string(body)), 0)
	}
	w.Header().Set("Content-Type", "text/plain")
	io.WriteString(w, strconv.Itoa(total))
}

// number returns otherwise if s is not a number.
func number(s string, otherwise int) int {
	if n, err := strconv.Atoi(s); err == nil {
		return n
	}
	return otherwise
}

// json answers with the first items and what they cost, times m.
func (a *app) json(w http.ResponseWriter, r *http.Request) {
	n := min(max(0, number(r.PathValue("count"), 0)), len(a.items))
	times := number(r.URL.Query().Get("m"), 1)
	items := make([]totalled, n)
	for i, one := range a.items[:n] {
		items[i] = totalled{one, one.Price * one.Quantity * times}
	}
	answer(w, list[totalled]{items, n})
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		log.Print(err)
	}
}

const selectItems = `SELECT id, name, category, price, quantity, active, tags, rating_score, rating_count
	FROM items WHERE price BETWEEN $1 AND $2 LIMIT $3`

// query answers with items of the database, or without any if there is none.
func (a *app) query(w http.ResponseWriter, r *http.Request) {
	items := []item{}
	if a.database != nil {
		q := r.URL.Query()
		limit := min(max(1, number(q.Get("limit"), 50)), 50)
		rows, err := a.database.Query(r.Context(), selectItems, number(q.Get("min"), 10), number(q.Get("max"), 50), limit)
		if err == nil {
			items, err = pgx.CollectRows(rows, scanItem)
		}
		if err != nil {
			log.Print(err)
			items = []item{}
		}
	}
	answer(w, list[item]{items, len(items)})
}

func scanItem(row pgx.CollectableRow) (i item, err error) {
	err = row.Scan(&i.ID, &i.Name, &i.Category, &i.Price, &i.Quantity, &i.Active, &i.Tags, &i.Rating.Score, &i.Rating.Count)
	return i, err
}

// echo makes a WebSocket that sends back what it gets.
func (a *app) echo(w http.ResponseWriter, r *http.Request) {
	up := wsadapter.NewUpgrade(w)
	ws, err := a.upgrader.Upgrade(up, r, nil)
	if err != nil {
		return // it has answered
	}
	wsadapter.Start(up.Conn(), &session{ws})
}

type session struct{ ws *websocket.Conn }

type message struct {
	kind int
	data []byte
}

func (s *session) Read() (m message, err error) {
	m.kind, m.data, err = s.ws.ReadMessage()
	return m, err
}

func (s *session) Handle(m message) error { return s.ws.WriteMessage(m.kind, m.data) }

func (s *session) End(error) { s.ws.Close() }

// sums is the gRPC service.
type sums struct {
	benchmarkpb.UnimplementedBenchmarkServiceServer
}

func (sums) GetSum(_ context.Context, r *benchmarkpb.SumRequest) (*benchmarkpb.SumReply, error) {
	return &benchmarkpb.SumReply{Result: r.A + r.B}, nil
}

func (sums) StreamSum(r *benchmarkpb.StreamRequest, stream grpc.ServerStreamingServer[benchmarkpb.SumReply]) error {
	for i := range max(1, r.Count) {
		if err := stream.Send(&benchmarkpb.SumReply{Result: r.A + r.B + i}); err != nil {
			return err
		}
	}
	return nil
}
