// Package audit shows a node to people and to machines: its functions with
// their isolation verdicts, as values and in print. It only reads; nothing it
// links can write to the kernel.
package audit
