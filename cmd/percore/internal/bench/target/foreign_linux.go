package target

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/percore/percore/cmd/percore/internal/selfsigned"
)

// writeSelfSigned writes a private key and its certificate as files.
func writeSelfSigned(dir string) (keyFile, certFile string, err error) {
	cert, err := selfsigned.New("")
	if err != nil {
		return "", "", err
	}
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		return "", "", err
	}
	keyFile, certFile = filepath.Join(dir, "key"), filepath.Join(dir, "cert")
	write := func(file, kind string, der []byte) error {
		return os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
	}
	return keyFile, certFile, errors.Join(write(keyFile, "PRIVATE KEY", key), write(certFile, "CERTIFICATE", cert.Certificate[0]))
}

// addProcess adds what the threads of a process have consumed. Threads that have ended are missing.
func (u *Usage) addProcess(pid string) error {
	threads, err := filepath.Glob("/proc/" + pid + "/task/*")
	for _, dir := range threads {
		err = errors.Join(err, u.addThread(dir+"/"))
	}
	return err
}

// addThread adds what a thread has consumed. schedstat counts nanoseconds on a processor. stat
// distinguishes user and system time, in ticks of 10 ms (proc(5)).
func (u *Usage) addThread(dir string) error {
	schedstat, err := os.ReadFile(dir + "schedstat")
	if err != nil {
		return err
	}
	stat, err := os.ReadFile(dir + "stat")
	if err != nil {
		return err
	}
	status, err := os.ReadFile(dir + "status")
	if err != nil {
		return err
	}
	onProcessor, _ := strconv.ParseInt(string(bytes.Fields(schedstat)[0]), 10, 64)
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	ticks, _ := strconv.ParseInt(string(fields[12]), 10, 64) // stime, field 15 of the whole line
	system := min(time.Duration(ticks)*10*time.Millisecond, time.Duration(onProcessor))
	u.System += system
	u.User += time.Duration(onProcessor) - system
	for line := range bytes.Lines(status) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		n, _ := strconv.ParseInt(string(bytes.TrimSpace(value)), 10, 64)
		switch string(name) {
		case "voluntary_ctxt_switches":
			u.Voluntary += n
		case "nonvoluntary_ctxt_switches":
			u.Preempted += n
		}
	}
	return nil
}
