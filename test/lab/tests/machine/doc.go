// Package machine has guest tests of the lab machine itself: that it is what the topology says and that its kernel
// does what the product's tests build on.
package machine
