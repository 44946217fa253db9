package kv

import (
	"strings"
	"testing"

	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

func TestAnswer(t *testing.T) {
	const set, get = "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$5\r\nhello\r\n", "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n"
	for _, c := range []struct{ commands, want, wantErr string }{
		{get, "$-1\r\n", ""},
		{set + get + set, "+OK\r\n$5\r\nhello\r\n+OK\r\n", ""},
		{"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$0\r\n\r\n" + get, "+OK\r\n$0\r\n\r\n", ""},
		{strings.Replace(set, "SET", "PUT", 1), "", "neither GET nor SET"},
		{strings.Replace(set, "SET", "GET", 1), "", "neither GET nor SET"},
		{strings.Replace(get, "GET", "SET", 1), "", "neither GET nor SET"},
		{"GET k\r\n", "", "not an array"},
		{"*x\r\n", "", "not an array"},
		{"*1\r\n", "", "not an array"},
		{"*2\r\n$99999999\r\n", "", "not an array"},
		{"*2\r\n" + strings.Repeat("$", 20), "", "not an array"},
	} {
		for portion := range len(c.commands) {
			answers, rest := "", ""
			var err error
			store := New()
			for i := 0; i < len(c.commands) && err == nil; i += portion + 1 {
				var got []byte
				var used int
				rest += c.commands[i:min(i+portion+1, len(c.commands))]
				got, used, err = store.Answer(nil, []byte(rest))
				answers, rest = answers+string(got), rest[used:]
			}
			if answers != c.want || (err == nil) != (c.wantErr == "") || err != nil && !strings.Contains(err.Error(), c.wantErr) {
				t.Fatalf("%q by %d bytes: got %q, %v, want %q, %s", c.commands, portion+1, answers, err, c.want, c.wantErr)
			}
		}
	}
}
