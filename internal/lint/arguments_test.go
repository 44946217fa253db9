package lint

import (
	"go/ast"
	"slices"
	"testing"
)

// nilArguments: a test of each public package calls all of its functions with nil and zero values, by
// testnet.CheckArguments.
func nilArguments(t *testing.T, tr *tree) {
	needed, checked := make(map[string]bool), make(map[string]bool)
	for _, f := range tr.files {
		switch dir := f.dir(); {
		case f.isTest():
			checked[dir] = checked[dir] || f.checksArguments()
		case f.syntax.Name.Name != "main" && !isInternal(dir) && f.hasArguments():
			needed[dir] = true
		}
	}
	for dir := range needed {
		if !checked[dir] && !isIn(dir, "examples") && !isIn(dir, "cmd") {
			t.Errorf("%s: no test calls all functions with nil and zero values: add one, with testnet.CheckArguments", dir)
		}
	}
}

// hasArguments reports whether a file has an exported function or method with parameters.
func (f *goFile) hasArguments() bool {
	return slices.ContainsFunc(f.syntax.Decls, func(decl ast.Decl) bool {
		fn, ok := decl.(*ast.FuncDecl)
		return ok && fn.Name.IsExported() && receiverIsExported(fn) && fn.Type.Params.NumFields() > 0
	})
}

// checksArguments reports whether a file calls testnet.CheckArguments.
func (f *goFile) checksArguments() (found bool) {
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		found = found || ok && typeName(call.Fun) == "CheckArguments"
		return !found
	})
	return found
}
