// Package e2e holds tests against a real Kubernetes control plane. They have the build tag e2e.
package e2e
