// Package katastate reads what Kata's runtimes write down of the sandboxes that run:
// the Go runtime in /run/vc/sbs/<id>/persist.json, the Rust runtime in
// /run/kata/<id>/state.json. It reads below a node's root and changes nothing.
//
// The files are Kata's own, for its own next process, and no interface. What this
// package knows is that of Kata 4.1.0: a file that says something else is damaged, and
// never half believed.
package katastate
