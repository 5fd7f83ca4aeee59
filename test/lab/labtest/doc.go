// Package labtest runs Go tests inside a lab machine and reports them as subtests outside.
//
// A guest test is an ordinary Go test with the build tag lab. It runs as root in the machine, from the directory
// of its package's files, testdata included. On the host, a test with the build tag labhost starts the machine and
// names the packages. What a guest test lacks is a failure, never a skip, and so is a package without tests.
package labtest
