package testnet

import (
	"fmt"
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"io"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Call is an exported function or method that CheckArguments calls.
type Call struct {
	// Func is the function, or a method of a value that works, or a closure with the same
	// parameters: one that passes an option on to the constructor that applies it, for example.
	Func any

	// Args are arguments that are not the zero value, in the order of the parameters; nil stands for the
	// zero value, and so do those that are left out. They accompany a nil for another parameter.
	Args []any

	// Nils names the parameters for which nil is an argument like any other, "..." those of which
	// an element may be nil.
	Nils string

	// Says is what the refusal of a nil says where that is not about the function and nil: package
	// net's own text, for example. Alternatives are separated by "|".
	Says string
}

// CheckArguments calls each exported function and method of the package in the current directory
// that has parameters: once with zero values only, and once with a nil for each parameter that can be
// nil. A function that has no place in the table fails the test, so a new one needs a row.
//
// Zero values may be refused, but no function may fail by accident, with an error of the runtime. A
// nil must be refused by the call itself: with an error if the function returns one, otherwise with a
// panic. The text says which function it was, and that something was nil. Functions are keyed by
// their name, methods as "Type.Method".
func CheckArguments(t *testing.T, table map[string]Call) {
	t.Helper()
	exported := exportedFuncs(t)
	for name, params := range exported {
		call, ok := table[name]
		if !ok {
			t.Errorf("%s is not in the table: add a row, so that it is called with nil and zero values", name)
			continue
		}
		t.Run(name, func(t *testing.T) { call.check(t, name, params) })
	}
	for name := range table {
		if exported[name] == nil {
			t.Errorf("the table has %s, which is no exported function with parameters", name)
		}
	}
}

func (c *Call) check(t *testing.T, name string, params []string) {
	f := reflect.ValueOf(c.Func)
	if f.Type().NumIn() != len(params) {
		t.Fatalf("got a function with %d parameters, want %s", f.Type().NumIn(), strings.Join(params, ", "))
	}
	zeros, args := make([]reflect.Value, len(params)), make([]reflect.Value, len(params))
	for i := range params {
		zeros[i] = reflect.Zero(f.Type().In(i))
		args[i] = zeros[i]
		if i < len(c.Args) && c.Args[i] != nil {
			args[i] = reflect.ValueOf(c.Args[i])
		}
	}
	c.outcome(t, f, zeros)
	allowed := strings.Fields(c.Nils)
	for i, param := range params {
		with := slices.Clone(args)
		switch in := f.Type().In(i); {
		case f.Type().IsVariadic() && i == len(params)-1:
			if param = "..."; !canBeNil(in.Elem()) {
				continue
			}
			with[i] = reflect.MakeSlice(in, 1, 1)
		case !canBeNil(in) || in.Kind() == reflect.Slice:
			continue
		default:
			with[i] = zeros[i]
		}
		says := c.outcome(t, f, with)
		if slices.Contains(allowed, param) {
			continue
		}
		short := name[strings.LastIndexByte(name, '.')+1:]
		switch {
		case c.isOther(says):
		case !strings.Contains(says, "nil") || !strings.Contains(says, short):
			t.Errorf("nil for %s: got %q, want an error or panic of the call that says %s and nil", param, says, short)
		}
	}
}

// outcome calls f and returns the text of its error or its panic, or "".
func (c *Call) outcome(t *testing.T, f reflect.Value, args []reflect.Value) (says string) {
	t.Helper()
	defer func() {
		t.Helper()
		value := recover()
		if value == nil {
			return
		}
		says = fmt.Sprint(value)
		if _, ok := value.(runtime.Error); ok {
			t.Errorf("got a panic of the runtime, want an error or a panic with a text: %s", says)
		} else if out := f.Type(); out.NumOut() > 0 && out.Out(out.NumOut()-1) == reflect.TypeFor[error]() && !c.isOther(says) {
			t.Errorf("got a panic, want an error, which the function can return: %s", says)
		}
	}()
	call := f.Call
	if f.Type().IsVariadic() {
		call = f.CallSlice
	}
	for _, result := range call(args) {
		switch result := result.Interface().(type) {
		case error:
			return result.Error()
		case io.Closer:
			if v := reflect.ValueOf(result); !canBeNil(v.Type()) || !v.IsNil() {
				result.Close()
			}
		}
	}
	return ""
}

// isOther reports whether a refusal is one of those in Says.
func (c *Call) isOther(says string) bool {
	return c.Says != "" && slices.ContainsFunc(strings.Split(c.Says, "|"), func(other string) bool {
		return strings.Contains(says, other)
	})
}

func canBeNil(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Pointer, reflect.Func, reflect.Interface, reflect.Map, reflect.Slice, reflect.Chan:
		return true
	}
	return false
}

// exportedFuncs returns the names of the parameters of each function and method that has any.
func exportedFuncs(t *testing.T) map[string][]string {
	t.Helper()
	dir, err := build.Default.ImportDir(".", 0)
	if err != nil {
		t.Fatal(err)
	}
	all := make(map[string][]string)
	for _, file := range dir.GoFiles {
		syntax, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir.Dir, file), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range syntax.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() {
				continue
			}
			name := f.Name.Name
			if f.Recv != nil {
				of := receiver(f.Recv.List[0].Type)
				if !ast.IsExported(of) {
					continue
				}
				name = of + "." + name
			}
			for _, field := range f.Type.Params.List {
				for _, param := range field.Names {
					all[name] = append(all[name], param.Name)
				}
				if len(field.Names) == 0 {
					all[name] = append(all[name], "_")
				}
			}
		}
	}
	return all
}

// receiver returns the name of a receiver's type.
func receiver(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// CheckNegatives sets each number of a configuration to -1, one at a time, and calls use, which
// passes the configuration to its function. That must fail, with an error or a panic that names the
// field, unless the field is among those that are allowed to be negative.
func CheckNegatives[C any](t *testing.T, use func(C) error, allowed string) {
	t.Helper()
	of := reflect.TypeFor[C]()
	for i := range of.NumField() {
		field := of.Field(i)
		var config C
		v := reflect.ValueOf(&config).Elem().Field(i)
		if !v.CanSet() || !v.CanInt() || slices.Contains(strings.Fields(allowed), field.Name) {
			continue
		}
		v.SetInt(-1)
		call := Call{Func: func() { // returns no error, so a panic is all right
			if err := use(config); err != nil {
				panic(err.Error())
			}
		}}
		if says := call.outcome(t, reflect.ValueOf(call.Func), nil); !strings.Contains(says, field.Name) {
			t.Errorf("%v with %s -1: got %q, want an error or a panic that names the field", of, field.Name, says)
		}
	}
}
