// Package page writes an audit as one HTML file for people: the verdict, the node
// drawn with its tenants, findings, functions, who has had what, and the rules.
// The file stands alone. It asks nothing of a network, which its content security
// policy forbids as well, and all of it can be read without its script, which
// only filters.
package page
