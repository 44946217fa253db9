package hpack

// A Field is a name and a value.
type Field struct {
	Name  *Name
	Value string

	// Sensitive fields are sent so that no intermediary puts them into a table (RFC 7541, section
	// 7.1.3). The decoder sets it for a field that was sent that way.
	Sensitive bool

	badValue bool
}

// MakeField returns a field with a name in lower case.
func MakeField(wire, value string) Field {
	return Field{Name: NameOf(wire), Value: value, badValue: !ValidValue(value)}
}

func newField(name *Name, value string) *Field {
	return &Field{Name: name, Value: value, badValue: !ValidValue(value)}
}

// Valid reports whether name and value are valid by RFC 9113, section 8.2.1. It was found out when the
// field was made.
func (f *Field) Valid() bool { return !f.badValue && f.Name.class != BadName }

// entryOverhead is how many bytes an entry counts in addition to its name and value (RFC 7541,
// section 4.1).
const entryOverhead = 32

// Size returns the size of the field in bytes, as tables and SETTINGS_MAX_HEADER_LIST_SIZE count it (RFC
// 7541, section 4.1; RFC 9113, section 6.5.2).
func (f Field) Size() int { return len(f.Name.wire) + len(f.Value) + entryOverhead }
