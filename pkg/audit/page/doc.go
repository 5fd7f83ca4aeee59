// Package page writes HTML files for people: an audit (the verdict, the node drawn
// with its tenants, findings, functions, who has had what, and the rules), and a
// ledger's answer to the question who had what. Both share a frame, a style sheet
// and parts. The files stand alone. They ask nothing of a network, which their
// content security policies forbid as well, and all of an audit can be read
// without its script, which only filters.
package page
