package bench

import (
	"reflect"
	"strings"
	"testing"

	"github.com/percore/percore/cmd/percore/internal/bench/scenario"
)

func TestParseArms(t *testing.T) {
	got, err := ParseArms("percore+fastpath, net,net,fasthttp")
	if err != nil {
		t.Fatal(err)
	}
	want := []Arm{
		{Name: "percore+fastpath", Engine: scenario.Engine{Percore: true, Kind: scenario.FastPath}},
		{Name: "net"},
		{Name: "net#2"},
		{Name: "fasthttp", Engine: scenario.Engine{Kind: scenario.FastHTTP}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
	for list, want := range map[string]string{
		"": `unknown arm ""`, "evio": `unknown arm "evio"`, "net,": `unknown arm ""`, "net+fastpath": `unknown arm "net+fastpath"`,
	} {
		if _, err := ParseArms(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want one with %q", list, err, want)
		}
	}
}

func TestArmSettings(t *testing.T) {
	arms, err := ParseArms("percore,net")
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
	want := []Arm{
		{Name: "percore", Engine: scenario.Engine{Percore: true}, Env: []string{"A=1", "B=x:y"}, Executable: "/bin/old"},
		{Name: "net", Env: []string{"A=1"}},
	}
	if !reflect.DeepEqual(arms, want) {
		t.Errorf("got  %+v\nwant %+v", arms, want)
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
