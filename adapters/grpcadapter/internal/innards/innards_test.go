package innards

import (
	"context"
	"maps"
	"slices"
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
	lines := slices.Collect(strings.Lines(privateFields))
	for i, line := range lines {
		if !strings.HasPrefix(line, "\t") {
			continue
		}
		name, typ, _ := strings.Cut(line, " ")
		for change, instead := range map[string][]string{
			"added":   nil,
			"missing": {line, "\tanother int\n"},
			"renamed": {name + "s " + typ},
			"retyped": {name + " another.Type\n"},
		} {
			if err := check(strings.Join(slices.Concat(lines[:i], instead, lines[i+1:]), ""), publicFields); err == nil {
				t.Errorf("%s: a field that is %s is not noticed", strings.TrimSpace(line), change)
			}
		}
	}
	for of, names := range publicFields {
		for _, changed := range []string{names + " Another", strings.TrimPrefix(names, strings.Fields(names)[0])} {
			public := maps.Clone(publicFields)
			if public[of] = changed; check(privateFields, public) == nil {
				t.Errorf("%v: the fields %s pass for %s", of, names, changed)
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
