package innards

import (
	"context"
	"maps"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/stats"

	"github.com/percore/percore/adapters/grpcadapter/internal/rpc"
	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// TestCheck: the types of the grpc-go that this package is built with are known. Each field that is
// added, missing, renamed, or of another type, is noticed.
func TestCheck(t *testing.T) {
	if err := Check(); err != nil {
		t.Fatalf("grpc-go %s: %v", grpc.Version, err)
	}
	for of, names := range known {
		for _, field := range strings.Split(names, "; ") {
			name, typ, private := strings.Cut(field, " ")
			rest := strings.Replace(names+"; ", field+"; ", "", 1)
			changes := map[string]string{
				"added":   strings.TrimSuffix(rest, "; "),
				"missing": names + "; another int",
				"renamed": rest + name + "s " + typ,
			}
			if private {
				changes["retyped"] = rest + name + " another.Type"
			}
			for change, fields := range changes {
				changed := maps.Clone(known)
				if changed[of] = fields; check(changed) == nil {
					t.Errorf("%v: a field %s that is %s is not noticed", of, field, change)
				}
			}
		}
	}
}

// TestSamePackageNames: a type of another package with the same name is another type, where it is read.
func TestSamePackageNames(t *testing.T) {
	type Handler interface{ stats.Handler }
	defer func() {
		if recover() == nil {
			t.Error("another Handler is not noticed")
		}
	}()
	get[Handler](Look(grpc.NewServer()).fields, "statsHandler")
}

// TestFindKeys: a context with a key that is not known, or without one that is, is refused.
func TestFindKeys(t *testing.T) {
	type key struct{}
	for _, ctx := range []context.Context{context.Background(), context.WithValue(context.Background(), key{}, 1)} {
		if _, err := FindKeys(ctx); err == nil {
			t.Errorf("%v: got no error", ctx)
		}
	}
}

// TestWindow: the window of grpc-go's option InitialWindowSize is obeyed, also when the option leaves
// windows growing, as it is to be after 1.85. Then the window is not below what it is without the
// option.
func TestWindow(t *testing.T) {
	without := rpc.DefaultConfig().StreamWindow
	for _, test := range []struct {
		option int32
		static bool
		want   int32
	}{
		{0, false, without},
		{without - 1, false, without},
		{without + 1, false, without + 1},
		{0, true, windowMin}, // StaticConnWindowSize alone
		{windowMin - 1, true, windowMin},
		{without - 1, true, without - 1},
		{without + 1, true, without + 1},
	} {
		s := Look(grpc.NewServer())
		*ptr[int32](s.options, "initialWindowSize") = test.option
		*ptr[bool](s.options, "staticWindowSize") = test.static
		c, err := s.Config()
		if err != nil {
			t.Fatal(err)
		}
		if c.StreamWindow != test.want {
			t.Errorf("%d, static %v: got %d, want %d", test.option, test.static, c.StreamWindow, test.want)
		}
	}
}

// TestStopping: it is known which of the server's methods calls.
func TestStopping(t *testing.T) {
	if stopping, _ := Stopping(); stopping {
		t.Error("nobody stops a server")
	}
}
