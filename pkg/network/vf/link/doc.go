// Package link reads the node's network interfaces and the VFs behind them by
// rtnetlink, eswitches by devlink, and flow control by ethtool. It asks and changes
// nothing; package vf writes.
package link
