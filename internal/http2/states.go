package http2

// A state is one of RFC 9113, section 5.1. Without server push there are no reserved streams.
type state uint8

const (
	idle             state = iota
	open                   // both sides may send
	halfClosedLocal        // we have sent END_STREAM
	halfClosedRemote       // the peer has
	closed                 // both have, or the peer has sent RST_STREAM, or a later stream was opened before it
	cancelled              // we have sent RST_STREAM recently: frames of the peer may be on their way
	states
)

var stateNames = [states]string{"idle", "open", "half-closed (local)", "half-closed (remote)", "closed", "cancelled"}

func (s state) String() string { return stateNames[s] }

// An input is something that happens to a stream. END_STREAM is a separate input for the side that
// sends it.
type input uint8

const (
	gotHeaders      input = iota // a request, or trailers; an answer changes a stream only by its END_STREAM
	gotHeadersEnd                // with END_STREAM
	gotData                      // without it
	gotDataEnd                   // with it
	gotReset                     // RST_STREAM
	gotWindowUpdate              //
	sentHeaders                  // or DATA, or WINDOW_UPDATE: nothing changes
	sentEnd                      // END_STREAM, with any frame
	sentReset                    // RST_STREAM
	inputs
)

// A transition is the next state, or the error that the input causes.
type transition struct {
	next state
	verdict
}

func to(next state) transition { return transition{next: next} }

const notAllowed = "a frame that the state of its stream does not allow"

// Breaches of the protocol. Where RFC 9113 leaves a choice we do as net/http: HEADERS on a stream that
// has ended are an identifier that went down (section 5.1.1).
var (
	connProtocol  = transition{verdict: connError(ProtocolError, notAllowed)}
	streamClosed  = transition{verdict: streamError(StreamClosed, notAllowed)}
	trailersStay  = transition{verdict: streamError(ProtocolError, notAllowed)} // trailers without END_STREAM
	notOurs       = transition{verdict: connError(InternalError, notAllowed)}   // a mistake of the caller, which gets ErrEnded
	ignored       = to(closed)
	ignoredBySelf = to(cancelled)
)

// transitions is the diagram of RFC 9113, section 5.1.
var transitions = [states][inputs]transition{
	idle: {
		gotHeaders: to(open), gotHeadersEnd: to(halfClosedRemote),
		gotData: connProtocol, gotDataEnd: connProtocol, gotReset: connProtocol, gotWindowUpdate: connProtocol,
		sentHeaders: notOurs, sentEnd: notOurs, sentReset: to(cancelled),
	},
	open: {
		gotHeaders: trailersStay, gotHeadersEnd: to(halfClosedRemote),
		gotData: to(open), gotDataEnd: to(halfClosedRemote), gotReset: to(closed), gotWindowUpdate: to(open),
		sentHeaders: to(open), sentEnd: to(halfClosedLocal), sentReset: to(cancelled),
	},
	halfClosedLocal: {
		gotHeaders: trailersStay, gotHeadersEnd: to(closed),
		gotData: to(halfClosedLocal), gotDataEnd: to(closed), gotReset: to(closed), gotWindowUpdate: to(halfClosedLocal),
		sentHeaders: notOurs, sentEnd: notOurs, sentReset: to(cancelled),
	},
	halfClosedRemote: {
		gotHeaders: streamClosed, gotHeadersEnd: streamClosed,
		gotData: streamClosed, gotDataEnd: streamClosed, gotReset: to(closed), gotWindowUpdate: to(halfClosedRemote),
		sentHeaders: to(halfClosedRemote), sentEnd: to(closed), sentReset: to(cancelled),
	},
	closed: {
		gotHeaders: connProtocol, gotHeadersEnd: connProtocol,
		gotData: streamClosed, gotDataEnd: streamClosed, gotReset: ignored, gotWindowUpdate: ignored,
		sentHeaders: notOurs, sentEnd: notOurs, sentReset: ignored,
	},
	cancelled: {
		gotHeaders: ignoredBySelf, gotHeadersEnd: ignoredBySelf,
		gotData: ignoredBySelf, gotDataEnd: ignoredBySelf, gotReset: ignoredBySelf, gotWindowUpdate: ignoredBySelf,
		sentHeaders: notOurs, sentEnd: notOurs, sentReset: ignoredBySelf,
	},
}
