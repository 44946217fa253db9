package kubernetes

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/percore/percore/internal/testnet"
)

func TestMain(m *testing.M) { testnet.Main(m) }

// manifests are the objects of percore.yaml.
type manifests struct {
	deployment appsv1.Deployment
	service    corev1.Service
	budget     policyv1.PodDisruptionBudget
	policy     networkingv1.NetworkPolicy
}

// load reads percore.yaml. A field that the API doesn't have, or a value of another type, is an error.
func load(t *testing.T) *manifests {
	file, err := os.ReadFile("percore.yaml")
	if err != nil {
		t.Fatal(err)
	}
	m := new(manifests)
	objects := map[string]any{
		"apps/v1 Deployment": &m.deployment, "v1 Service": &m.service,
		"policy/v1 PodDisruptionBudget": &m.budget, "networking.k8s.io/v1 NetworkPolicy": &m.policy,
	}
	for document := range bytes.SplitSeq(file, []byte("\n---\n")) {
		var kind struct{ APIVersion, Kind string }
		if err := yaml.Unmarshal(document, &kind); err != nil {
			t.Fatal(err)
		}
		name := kind.APIVersion + " " + kind.Kind
		object, ok := objects[name]
		if !ok {
			t.Fatalf("percore.yaml: %q comes twice, or is not known here", name)
		}
		delete(objects, name)
		if err := yaml.UnmarshalStrict(document, object); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if len(objects) > 0 {
		t.Fatalf("percore.yaml lacks %d objects", len(objects))
	}
	return m
}

// TestManifests checks what the API server would refuse, or would let pass and never work.
func TestManifests(t *testing.T) {
	m := load(t)
	labels := m.deployment.Spec.Template.Labels
	for name, selector := range map[string]map[string]string{
		"the deployment": m.deployment.Spec.Selector.MatchLabels, "the service": m.service.Spec.Selector,
		"the budget": m.budget.Spec.Selector.MatchLabels, "the policy": m.policy.Spec.PodSelector.MatchLabels,
	} {
		for key, value := range selector {
			if labels[key] != value {
				t.Errorf("%s selects %s=%s, which the pods don't have", name, key, value)
			}
		}
	}
	container := m.deployment.Spec.Template.Spec.Containers[0]
	hasPort := func(port intstr.IntOrString) bool {
		return slices.ContainsFunc(container.Ports, func(p corev1.ContainerPort) bool { return p.Name == port.String() })
	}
	for _, p := range m.service.Spec.Ports {
		if !hasPort(p.TargetPort) {
			t.Errorf("the service's port %s: the container has no %v", p.Name, p.TargetPort)
		}
	}
	for _, rule := range m.policy.Spec.Ingress {
		for _, p := range rule.Ports {
			if !hasPort(*p.Port) {
				t.Errorf("the policy: the container has no port %v", p.Port)
			}
		}
	}
	if !hasPort(container.ReadinessProbe.HTTPGet.Port) || !hasPort(container.LivenessProbe.TCPSocket.Port) {
		t.Error("a probe has a port that the container doesn't have")
	}
	for _, p := range container.Ports {
		if got := flag(t, container.Args, p.Name); got != fmt.Sprintf("0.0.0.0:%d", p.ContainerPort) {
			t.Errorf("port %s is %d, and -%s %s", p.Name, p.ContainerPort, p.Name, got)
		}
	}
	grace := time.Duration(*m.deployment.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
	delay, drain := duration(t, container.Args, "drain-delay"), duration(t, container.Args, "drain")
	if grace <= delay+drain {
		t.Errorf("the pod is killed after %v; it needs %v and %v", grace, delay, drain)
	}
	probe := container.ReadinessProbe
	if notice := time.Duration(probe.PeriodSeconds*probe.FailureThreshold) * time.Second; delay <= notice {
		t.Errorf("-drain-delay %v ends before the probe has failed, after %v", delay, notice)
	}
}

// flag returns a flag's value in a container's arguments.
func flag(t *testing.T, args []string, name string) string {
	t.Helper()
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, "-"+name+"="); ok {
			return value
		}
	}
	t.Fatalf("the container has no -%s", name)
	return ""
}

func duration(t *testing.T, args []string, name string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(flag(t, args, name))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestServe runs percore serve with the container's arguments at other addresses: it takes
// them, the probes succeed, and it stops in order on the image's signal.
func TestServe(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("the image is for Linux")
	}
	container := load(t).deployment.Spec.Template.Spec.Containers[0]
	exe := filepath.Join(t.TempDir(), "percore")
	if out, err := exec.Command("go", "build", "-o", exe, "../../cmd/percore").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var args []string
	addresses := make(map[string]string)
	for _, p := range container.Ports {
		addresses[p.Name] = testnet.Reserve(t)
	}
	for _, arg := range container.Args {
		name, value, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		switch {
		case addresses[name] != "":
			arg = "-" + name + "=" + addresses[name]
		case name == "dir":
			arg = "-dir=" + t.TempDir()
		case name == "drain-delay" && value != "":
			arg = "-drain-delay=1ms"
		}
		args = append(args, arg)
	}
	var output bytes.Buffer
	cmd := exec.Command(exe, append([]string{"serve"}, args...)...)
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() { cmd.Process.Kill() })

	probe := container.ReadinessProbe.HTTPGet
	url := "http://" + addresses[probe.Port.String()] + probe.Path
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	testnet.Eventually(t, url, func() bool {
		resp, err := client.Get(url)
		if err != nil {
			return false // it starts
		}
		defer resp.Body.Close()
		io.Copy(io.Discard, resp.Body)
		return resp.StatusCode == http.StatusOK
	})
	c, err := net.Dial("tcp", addresses[container.LivenessProbe.TCPSocket.Port.String()])
	if err != nil {
		t.Fatalf("the liveness probe: %v", err)
	}
	c.Close()
	cmd.Process.Signal(syscall.SIGTERM)
	if err := testnet.Receive(t, "the end", ended); err != nil {
		t.Errorf("%v\n%s", err, output.String())
	}
}

// TestDockerfile checks that the image's command has flags that the manifest's container overrides
// with the same ports, and the signal that serve drains on.
func TestDockerfile(t *testing.T) {
	file, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	container := load(t).deployment.Spec.Template.Spec.Containers[0]
	for _, p := range container.Ports {
		if want := fmt.Sprintf("%q, \"0.0.0.0:%d\"", "-"+p.Name, p.ContainerPort); !bytes.Contains(file, []byte(want)) {
			t.Errorf("the image's command lacks %s", want)
		}
		if want := fmt.Sprint(p.ContainerPort); !bytes.Contains(file, []byte(want)) {
			t.Errorf("the image doesn't name port %s", want)
		}
	}
	if !bytes.Contains(file, []byte("\nSTOPSIGNAL SIGTERM\n")) {
		t.Error("the image's signal is not SIGTERM")
	}
}
