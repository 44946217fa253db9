package bench

import (
	"reflect"
	"strings"
	"testing"

	"github.com/percore/percore/cmd/percore/internal/bench/target"
)

func TestParseArms(t *testing.T) {
	got, err := ParseArms("percore, net-nomptcp,net,net,percore+thread+pin+loops=4+leastloaded+mptcp+netbuffers,fasthttp,percore+fasthttp+pin,percore+fastpath+pin,percore+reactor+thread,percore+newserver+loops=2,percore+fastpath+detach,percore+newserver+detach,percore+fastpath+limit,nginx,nghttpd,gnet,nbio,netpoll,net+bare,percore+bare+loops=2")
	if err != nil {
		t.Fatal(err)
	}
	want := []Arm{
		{Name: "percore", Engine: target.Engine{Name: "percore"}},
		{Name: "net-nomptcp", Engine: target.Engine{Name: "net"}, Env: []string{"GODEBUG=multipathtcp=0"}},
		{Name: "net", Engine: target.Engine{Name: "net"}},
		{Name: "net#2", Engine: target.Engine{Name: "net"}},
		{
			Name: "percore+thread+pin+loops=4+leastloaded+mptcp+netbuffers",
			Engine: target.Engine{
				Name: "percore", Thread: true, Pin: true, Loops: 4,
				LeastLoaded: true, MPTCP: true, NetBuffers: true,
			},
		},
		{Name: "fasthttp", Engine: target.Engine{Name: "net", FastHTTP: true}},
		{Name: "percore+fasthttp+pin", Engine: target.Engine{Name: "percore", FastHTTP: true, Pin: true}},
		{Name: "percore+fastpath+pin", Engine: target.Engine{Name: "percore", FastPath: true, Pin: true}},
		{Name: "percore+reactor+thread", Engine: target.Engine{Name: "percore", Reactor: true, Thread: true}},
		{Name: "percore+newserver+loops=2", Engine: target.Engine{Name: "percore", NewServer: true, Loops: 2}},
		{Name: "percore+fastpath+detach", Engine: target.Engine{Name: "percore", FastPath: true, Detach: true}},
		{Name: "percore+newserver+detach", Engine: target.Engine{Name: "percore", NewServer: true, Detach: true}},
		{Name: "percore+fastpath+limit", Engine: target.Engine{Name: "percore", FastPath: true, Limit: true}},
		{Name: "nginx", Engine: target.Engine{Name: "net", Nginx: true}},
		{Name: "nghttpd", Engine: target.Engine{Name: "net", Nghttpd: true}},
		{Name: "gnet", Engine: target.Engine{Name: "net", Peer: "gnet"}},
		{Name: "nbio", Engine: target.Engine{Name: "net", Peer: "nbio"}},
		{Name: "netpoll", Engine: target.Engine{Name: "net", Peer: "netpoll"}},
		{Name: "net+bare", Engine: target.Engine{Name: "net", Bare: true}},
		{Name: "percore+bare+loops=2", Engine: target.Engine{Name: "percore", Bare: true, Loops: 2}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestParseArmsErrors(t *testing.T) {
	for list, want := range map[string]string{
		"":                           `unknown arm ""`,
		"evio":                       `unknown arm "evio"`,
		"nbio+thread":                `unknown option "thread"`,
		"net,":                       `unknown arm ""`,
		"net+thread":                 `unknown option "thread": net has bare only`,
		"percore+fast":               `unknown option "fast"`,
		"percore+loops=many":         "invalid syntax",
		"net+fastpath":               `unknown option "fastpath": net has bare only`,
		"percore+reactor+fastpath":   "reactor is neither an adapter's nor fasthttp's",
		"gnet+fastpath":              `unknown option "fastpath"`,
		"percore+adapter":            `unknown option "adapter"`,
		"percore+detach":             "detach goes with fastpath or newserver",
		"percore+newserver+limit":    "limit goes with fastpath",
		"percore+fastpath+fasthttp":  "fasthttp has no adapter",
		"percore+fastpath+newserver": "newserver is gRPC's",
		"net+newserver":              `unknown option "newserver": net has bare only`,
		"net+detach":                 `unknown option "detach"`,
		"fasthttp+pin":               `unknown option "pin"`,
		"percore+bare+fastpath":      "bare calls have neither",
		"fasthttp+bare":              "bare calls have neither",
		"nginx+thread":               `unknown option "thread"`,
	} {
		if _, err := ParseArms(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", list, err, want)
		}
	}
}

func TestArmSettings(t *testing.T) {
	arms, err := ParseArms("percore,net-nomptcp")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"*:A=1", "percore:B=x:y"} {
		if err := SetEnv(arms, s); err != nil {
			t.Fatal(err)
		}
	}
	if err := SetExecutable(arms, "percore:/bin/old"); err != nil {
		t.Fatal(err)
	}
	if got, want := arms[0].Env, []string{"A=1", "B=x:y"}; !reflect.DeepEqual(got, want) {
		t.Errorf("environment of percore: %q, want %q", got, want)
	}
	if got, want := arms[1].Env, []string{"GODEBUG=multipathtcp=0", "A=1"}; !reflect.DeepEqual(got, want) {
		t.Errorf("environment of net: %q, want %q", got, want)
	}
	if arms[0].Executable != "/bin/old" || arms[1].Executable != "" {
		t.Errorf("executables %q and %q, want /bin/old and none", arms[0].Executable, arms[1].Executable)
	}
	for _, bad := range []string{"A=1", "percore:A", "gnet:A=1"} {
		if err := SetEnv(arms, bad); err == nil {
			t.Errorf("SetEnv(%q) succeeded", bad)
		}
	}
	for _, bad := range []string{"/bin/old", "percore:", "gnet:/bin/old"} {
		if err := SetExecutable(arms, bad); err == nil {
			t.Errorf("SetExecutable(%q) succeeded", bad)
		}
	}
}
