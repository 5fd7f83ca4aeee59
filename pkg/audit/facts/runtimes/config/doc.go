// Package config reads the configuration files of container runtimes as the runtimes'
// own loaders do: bounded, merged, and with the file that each setting comes from.
package config
