// Package terminal writes text for people at a terminal: within a width, in
// colours, and so that nothing that was read from a node can do more there than
// be seen.
package terminal
