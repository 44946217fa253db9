package http2

import (
	"bytes"
	"strings"
	"testing"
)

// TestPriorityUpdate: which PRIORITY_UPDATE frames and settings are errors, by what the server does
// with priorities.
func TestPriorityUpdate(t *testing.T) {
	const protocol, size = "> goaway 0 PROTOCOL_ERROR", "> goaway 0 FRAME_SIZE_ERROR"
	const errProtocol, errSize = "error http2: PROTOCOL_ERROR", "error http2: FRAME_SIZE_ERROR"
	nothing := []string(nil)
	for _, test := range []struct {
		name                   string
		send                   func(p *peer)
		unknown, ignore, serve []string
	}{
		{"of an idle stream", func(p *peer) { p.update(1, "u=1") }, nothing, nothing, nothing},
		{"of an even stream", func(p *peer) { p.update(2, "u=1") }, nothing, nothing, nothing},
		{"of the last stream", func(p *peer) { p.update(maxID, "") }, nothing, nothing, nothing},
		{"with the reserved bit", func(p *peer) { p.update(1|1<<31, "") }, nothing, nothing, nothing},
		{"of stream 0", func(p *peer) { p.update(0, "u=1") }, nothing, []string{errProtocol, protocol}, []string{errProtocol, protocol}},
		{"on a stream", func(p *peer) { p.frame(typePriorityUpdate, 0, 1, u32(1)) }, nothing, []string{errProtocol, protocol}, []string{errProtocol, protocol}},
		{"that is too short", func(p *peer) { p.frame(typePriorityUpdate, 0, 0, []byte{0, 0, 1}) }, nothing, []string{errSize, size}, []string{errSize, size}},
		{"that is no dictionary", func(p *peer) { p.update(1, "((((") }, nothing, nothing, []string{"> reset 1 PROTOCOL_ERROR"}},
		{"that is no dictionary, of an open stream", func(p *peer) { p.get(1).update(1, "u=1, ") },
			[]string{request1 + " end"}, []string{request1 + " end"}, []string{request1 + " end", "reset 1 PROTOCOL_ERROR local", "> reset 1 PROTOCOL_ERROR"}},
		{"of a stream that has ended", func(p *peer) { p.get(1).reset(1).update(1, "u=1") },
			[]string{request1 + " end", "reset 1 CANCEL"}, []string{request1 + " end", "reset 1 CANCEL"}, []string{request1 + " end", "reset 1 CANCEL"}},
		{"SETTINGS_NO_RFC7540_PRIORITIES", func(p *peer) { p.settings(settingNoRFC7540, 1) }, []string{"> settings ack"}, []string{"> settings ack"}, []string{"> settings ack"}},
		{"SETTINGS_NO_RFC7540_PRIORITIES of 2", func(p *peer) { p.settings(settingNoRFC7540, 2) }, []string{"> settings ack"}, []string{errProtocol, protocol}, []string{errProtocol, protocol}},
	} {
		for i, want := range [][]string{test.unknown, test.ignore, test.serve} {
			t.Run(test.name, func(t *testing.T) {
				cfg := DefaultConfig()
				cfg.Priorities = Priorities(i)
				p := newPeer(t, cfg)
				test.send(p)
				p.feed().want(want...)
			})
		}
	}
}

// TestAnnouncePriorities: a server that knows the priorities of RFC 9218 says that it doesn't serve
// those of RFC 7540.
func TestAnnouncePriorities(t *testing.T) {
	for of, want := range map[Priorities]bool{UnknownPriorities: false, IgnorePriorities: true, ServePriorities: true} {
		cfg := DefaultConfig()
		cfg.Priorities = of
		if got := bytes.Contains(newConn(cfg).Output(), []byte{0, settingNoRFC7540, 0, 0, 0, 1}); got != want {
			t.Errorf("Priorities %d: got %t", of, got)
		}
	}
}

// TestIgnorePriorities: without ServePriorities all answers take turns.
func TestIgnorePriorities(t *testing.T) {
	for _, of := range []Priorities{UnknownPriorities, IgnorePriorities} {
		cfg := priorities()
		cfg.Priorities = of
		p := newPeer(t, cfg)
		p.settings(settingInitialWindow, 1<<20).windowUpdate(0, 1<<20).update(3, "u=0").get(1, "priority", "u=7").get(3, "priority", "u=6").feed()
		p.queue(2, 1, 3)
		p.update(3, "u=1").feed()
		if got := p.drain(); got != "1 3 1 3" {
			t.Errorf("Priorities %d: got %s", of, got)
		}
		if p.c.schedule.others != nil || p.c.schedule.early != nil {
			t.Errorf("Priorities %d: got memory for classes", of)
		}
	}
}

// TestParsePriority: dictionaries of RFC 9651, and what they say about a priority.
func TestParsePriority(t *testing.T) {
	const plain = plainPriority
	for _, test := range []struct {
		text string
		want priority
		bad  bool
	}{
		{"", plain, false},
		{"u=0", 1, false}, {"u=7", 15, false}, {"u=8", plain, false}, {"u=-1", plain, false}, {"u=-0", 1, false}, {"u=007", 15, false},
		{"u=1.0", plain, false}, {"u=?1", plain, false}, {`u="1"`, plain, false}, {"u=one", plain, false}, {"u", plain, false}, {"u=(1 2)", plain, false},
		{"i", plain, false}, {"i=?1", plain, false}, {"i=?0", defaultPriority, false}, {"i=0", plain, false}, {"i=?0;a=1", defaultPriority, false},
		{"u=1, i=?0", 2, false}, {"u=1,i=?0", 2, false}, {"u=1 \t,\t i=?0", 2, false}, {"u=1 i=?0", 2, false}, {"u=1i=?0", 2, false},
		{"u=1, u=2", 5, false}, {"u=1, u=9", 3, false}, {"U=1", plain, true}, {"u=1;a;b=c;d=\"e\\\"\", i=?0", 2, false},
		{"a=1.5, b=-12, c=:YQ==:, d=@-1, e=%\"f%c3%bcr\", f=tok/en, g=(a \"b\";c  1);d, h=*, *x_-.9=(), u=1", 3, false},
		{"u=1,", plain, true}, {"u=1, ", plain, true}, {",u=1", plain, true}, {" u=1", plain, true}, {"u=1 ", 3, false}, {"u=", plain, true}, {"=1", plain, true}, {"u==1", plain, true},
		{"((((", plain, true}, {"u=(", plain, true}, {"u=(1", plain, true}, {"u=(1\t2)", plain, true}, {"u=(1,2)", plain, true}, {"u=()", plain, false},
		{"a=1234567890123456", plain, true}, {"a=123456789012345", plain, false}, {"a=1.", plain, true}, {"a=1.2345", plain, true}, {"a=1234567890123.1", plain, true}, {"a=-", plain, true}, {"a=--1", plain, true},
		{`a="`, plain, true}, {`a="\a"`, plain, true}, {`a="\`, plain, true}, {"a=\"\x7f\"", plain, true}, {"a=\"\xc3\"", plain, true},
		{"a=:YQ", plain, true}, {"a=:!:", plain, true}, {"a=?2", plain, true}, {"a=?", plain, true}, {"a=@1.5", plain, true}, {"a=@", plain, true},
		{`a=%"%`, plain, true}, {`a=%"%c`, plain, true}, {`a=%"%C3%BC"`, plain, true}, {`a=%"%c3"`, plain, true}, {`a=%"a`, plain, true}, {`a=%`, plain, true}, {"a=%\"\x01\"", plain, true},
		{"u=1;", plain, true}, {"u=1;A", plain, true}, {"u=1;a=", plain, true}, {"u=1; a", 3, false}, {"u=1 ;a", plain, true},
		{"i=?0\x00", plain, true}, {strings.Repeat("(", 16000), plain, true},
	} {
		got, ok := parsePriority(test.text, plain)
		if got != test.want || ok == test.bad {
			t.Errorf("%.60q: got %d, %t; want %d, %t", test.text, got, ok, test.want, !test.bad)
		}
	}
}

// FuzzPriority: whatever the text, a priority is one.
func FuzzPriority(f *testing.F) {
	for _, s := range []string{"u=1, i", "a=(1 2;c);d", `e=%"f%c3%bcr"`, "c=:YQ==:, d=@-1, x=1.5"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, ok := parsePriority(s, plainPriority)
		if p >= 16 || !ok && p != plainPriority {
			t.Fatalf("got %d, %t", p, ok)
		}
	})
}
