package lint

import (
	"go/ast"
	"regexp"
	"testing"
)

// carriers are types that embed a connection and through which no bytes of one go.
var carriers = map[string]string{
	"adapters/httpadapter/internal/h1.Conn": "what the adapter has; its users have it as a netConn",

	"internal/zerocopy.conn": "an end of one transfer, beside its owner",

	"..sock": "what a Conn has, which decides on each method",
}

// connType is the name of a type that is a connection.
var connType = regexp.MustCompile(`([cC]onn|^[tT]cp|^[uU]nix)$`)

// wrappers: each type that embeds a connection promotes the methods of that, also those that a later
// version gets. So a test of its package has to decide on each, by testnet.CheckMethods.
func wrappers(t *testing.T, tr *tree) {
	checked := make(map[string]bool)
	for _, f := range tr.files {
		if f.isTest() {
			for _, name := range f.checksMethodsOf() {
				checked[f.dir()+"."+name] = true
			}
		}
	}
	for _, f := range tr.files {
		if f.isTest() {
			continue
		}
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || !embedsConn(spec.Type) {
				return true
			}
			if carriers[f.dir()+"."+spec.Name.Name] == "" && !checked[f.dir()+"."+spec.Name.Name] {
				t.Errorf("%s: %s embeds a connection: decide on each method that it promotes, by testnet.CheckMethods in a test of the package",
					tr.at(spec.Pos()), spec.Name.Name)
			}
			return true
		})
	}
}

// embedsConn reports whether a type is a struct with a connection among its embedded fields.
func embedsConn(expr ast.Expr) bool {
	s, ok := expr.(*ast.StructType)
	if !ok {
		return false
	}
	for _, field := range s.Fields.List {
		if len(field.Names) == 0 && connType.MatchString(typeName(field.Type)) {
			return true
		}
	}
	return false
}

// typeName returns the last part of a type's name, without pointer and package.
func typeName(expr ast.Expr) string {
	switch e := expr.(type) {
	case *ast.StarExpr:
		return typeName(e.X)
	case *ast.SelectorExpr:
		return e.Sel.Name
	case *ast.Ident:
		return e.Name
	}
	return ""
}

// checksMethodsOf returns the types that testnet.CheckMethods is called for.
func (f *goFile) checksMethodsOf() (names []string) {
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if call, ok := n.(*ast.IndexExpr); ok && typeName(call.X) == "CheckMethods" {
			names = append(names, typeName(call.Index))
		}
		return true
	})
	return names
}
