// Package link reads the node's network interfaces and the VFs behind them by
// rtnetlink, and eswitches by devlink. It asks and changes nothing; package vf
// writes.
package link
